package apiserver

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/test/linearizability"
)

// processes are three servers, each in a process of its own.
type processes struct {
	*testing.T
	configs []Config
	running []*exec.Cmd
	apis    []kubernetes.Interface
}

// startProcesses starts three servers that are one cluster.
func startProcesses(t *testing.T) *processes {
	t.Helper()
	c := newCluster(t)
	p := &processes{T: t, running: make([]*exec.Cmd, 3)}
	for n := range 3 {
		config := c.config(n + 1)
		config.Port = 6443
		if os.Getenv("FAIRWAY_SERVERS") == "isolated" { // connections between servers come from such an address
			config.BindAddress = netip.AddrFrom4([4]byte{10, c.network[0], c.network[1], byte(n + 1)})
			if out, err := exec.Command("ip", "address", "add", config.BindAddress.String()+"/32", "dev", "lo").CombinedOutput(); err != nil {
				t.Fatalf("ip: %v: %s", err, out)
			}
		}
		p.configs = append(p.configs, config)
	}
	t.Cleanup(func() {
		for n := range p.running {
			p.end(n, syscall.SIGKILL)
		}
	})
	p.configs[0].ClusterInit = true
	p.start(0)
	ca, err := os.ReadFile(filepath.Join(p.configs[0].DataDir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 3; n++ {
		token := serverTokenBy(t, p.client(0), ca, time.Time{})
		p.configs[n].Join, p.configs[n].Token = "https://"+p.configs[0].BindAddress.String()+":6443", token
		p.start(n)
	}
	for n := range 3 {
		p.apis = append(p.apis, p.client(n))
	}
	return p
}

func (p *processes) start(n int) {
	p.Helper()
	data, err := json.Marshal(p.configs[n])
	if err != nil {
		p.Fatal(err)
	}
	p.running[n] = serverProcess(p.T, string(data))
}

// end ends a server by a signal, and waits for that.
func (p *processes) end(n int, signal syscall.Signal) {
	p.Helper()
	if p.running[n] == nil {
		return
	}
	for _, s := range []syscall.Signal{syscall.SIGCONT, signal} {
		if err := p.running[n].Process.Signal(s); err != nil {
			p.Error(err)
		}
	}
	_ = p.running[n].Wait() // it says that it was killed
	p.running[n] = nil
}

func (p *processes) client(n int) kubernetes.Interface {
	p.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", AdminKubeconfig(p.configs[n].DataDir))
	if err != nil {
		p.Fatal(err)
	}
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	return api
}

// leader is the number of the server that leads; it waits for one.
func (p *processes) leader() int {
	p.Helper()
	found := -1
	eventually(p.T, "that one of the servers leads", func() bool {
		for n, process := range p.running {
			if process == nil {
				continue
			}
			data, err := p.apis[n].CoreV1().RESTClient().Get().AbsPath(MembersPath).DoRaw(within(p.T))
			var list []Member
			if err != nil || json.Unmarshal(data, &list) != nil {
				continue
			}
			for _, m := range list {
				if m.Role == "leader" {
					found = int(m.Name[1]-'0') - 1
					return p.running[found] != nil
				}
			}
		}
		return false
	})
	return found
}

// works waits until a server takes writes.
func (p *processes) works(n int) {
	p.Helper()
	began := time.Now()
	eventually(p.T, "that the server takes writes", func() bool {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		_, err := p.apis[n].CoreV1().ConfigMaps("kube-system").Create(p.Context(), probe, metav1.CreateOptions{})
		return err == nil
	})
	p.Logf("server %d took writes after %s", n+1, time.Since(began).Round(100*time.Millisecond))
}

// faults are what servers must survive; each returns with all three running.
func (p *processes) faults() []func() {
	kill := func(n int) {
		p.Logf("kill -9 of server %d", n+1)
		p.end(n, syscall.SIGKILL)
		p.works((n + 1) % 3)
		p.start(n)
		p.works(n)
	}
	return []func(){
		func() { kill(p.leader()) },
		func() { kill((p.leader() + 1) % 3) },
		func() { // silent, and then back with an old view of the world
			n := p.leader()
			p.Logf("server %d, which leads, falls silent", n+1)
			p.signal(n, syscall.SIGSTOP)
			p.works((n + 1) % 3)
			p.signal(n, syscall.SIGCONT)
			p.works(n)
		},
		func() { // cut off from the others, while clients reach it: it must not answer with what was
			n := p.leader()
			p.Logf("server %d, which leads, is cut off from the others", n+1)
			heal := p.cutOff(n)
			eventually(p.T, "that it takes no writes", func() bool {
				probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
				_, err := p.apis[n].CoreV1().ConfigMaps("kube-system").Create(p.Context(), probe, metav1.CreateOptions{})
				return err != nil
			})
			p.works((n + 1) % 3)
			heal()
			p.works(n)
		},
		func() { // two of three: nothing is written until one is back
			n := p.leader()
			p.Logf("kill -9 of servers %d and %d", n+1, (n+1)%3+1)
			p.end(n, syscall.SIGKILL)
			p.end((n+1)%3, syscall.SIGKILL)
			time.Sleep(3 * time.Second) // no majority, for longer than an election takes
			// The first of them waits for the second.
			started := make(chan struct{})
			go func() {
				defer close(started)
				p.start(n)
			}()
			p.start((n + 1) % 3)
			<-started
			for n := range 3 {
				p.works(n)
			}
		},
		func() { // rolling restart
			for n := range 3 {
				p.Logf("server %d is restarted", n+1)
				p.end(n, syscall.SIGTERM)
				p.start(n)
				p.works(n)
			}
		},
	}
}

// cutOff has the kernel drop what a server and the others send each other, until
// what it returns is called. It takes a network namespace that is ours.
func (p *processes) cutOff(n int) (heal func()) {
	p.Helper()
	if os.Getenv("FAIRWAY_SERVERS") != "isolated" {
		p.Fatal("to cut servers off, run this by `make check NAME=servers`, in a network namespace")
	}
	nft := func(script string) {
		p.Helper()
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(script)
		if out, err := c.CombinedOutput(); err != nil {
			p.Fatalf("nft: %v: %s", err, out)
		}
	}
	self, others := p.configs[n].BindAddress.String(), []string{}
	for i := range p.configs {
		if i != n {
			others = append(others, p.configs[i].BindAddress.String())
		}
	}
	rest := strings.Join(others, ", ")
	nft("table ip cut {\nchain in {\ntype filter hook input priority 0\n" +
		"ip saddr " + self + " ip daddr { " + rest + " } drop\nip saddr { " + rest + " } ip daddr " + self + " drop\n}\n}\n")
	return func() { nft("delete table ip cut") }
}

func (p *processes) signal(n int, s syscall.Signal) {
	p.Helper()
	if err := p.running[n].Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// TestFaults: three servers under a load of writes lose nothing that they
// acknowledged, whichever of them is killed. FAIRWAY_SERVERS=1 (`make check NAME=servers`)
// adds every other fault, three times over.
func TestFaults(t *testing.T) {
	p := startProcesses(t)
	h := linearizability.New()
	stop := h.Load(t, p.apis)
	faults, rounds := p.faults(), 1
	if os.Getenv("FAIRWAY_SERVERS") == "" {
		faults = faults[:1]
	} else {
		rounds = 3
	}
	for range rounds {
		for _, fault := range faults {
			fault()
		}
	}
	stop()
	h.Check(t, p.apis[0])
}
