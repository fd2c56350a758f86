//go:build !agentonly

package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver"
)

// trio is three machines, each with a server of one cluster and an agent, which
// are programs that were built before.
type trio struct {
	*network
	before, after string // the programs
	names         []string
	apis          []kubernetes.Interface // of each server
	servers       []*program             // nil is one that doesn't run
	agents        []*program
	slowest       time.Duration // that the API was away for
}

// program is one that runs on a machine.
type program struct {
	pid  int
	kill func()
}

// startTrio starts the servers and agents of a program.
func startTrio(n *network, before, after string) *trio {
	n.t.Helper()
	t := &trio{network: n, before: before, after: after, names: []string{"m1", "m2", "m3"}, servers: make([]*program, 3), agents: make([]*program, 3)}
	for i := range t.names {
		t.install(i, before)
	}
	t.limit(2)
	t.serve(0, "--cluster-init")
	var line string
	for i := 1; i < 3; i++ {
		line = t.hosts["m1"].run("fairway token create --server --ttl 1h 2>/dev/null")
		t.serve(i, "--join https://10.77.0.11:6443 --token "+strings.TrimSpace(line))
	}
	line = t.hosts["m1"].run("fairway token create --ttl 1h 2>/dev/null")
	for i := range t.names {
		t.works(i)
		t.join(i, "https://10.77.0.11:6443 --token "+strings.TrimSpace(line))
	}
	eventually(t.t, "all machines are ready", func() bool {
		nodes, err := t.apis[0].CoreV1().Nodes().List(t.t.Context(), metav1.ListOptions{})
		t.must(err)
		return len(nodes.Items) == 3 && len(t.readySince()) == 3
	})
	return t
}

// install has a machine's fairway be a program from now on. What runs goes on.
func (t *trio) install(i int, file string) {
	t.t.Helper()
	m := t.hosts[t.names[i]]
	m.file("bin/fairway.new", "#!/bin/sh\nFAIRWAY_CLOCK="+m.dir+"/run/clock exec "+file+" \"$@\"\n", 0o755)
	t.must(os.Rename(filepath.Join(m.dir, "bin", "fairway.new"), filepath.Join(m.dir, "bin", "fairway")))
}

// limit gives a machine's data a small disk.
func (t *trio) limit(i int) {
	t.t.Helper()
	dir := filepath.Join(t.hosts[t.names[i]].dir, "lib")
	t.must(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512m"))
	t.t.Cleanup(func() { t.must(syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// serve starts a machine's server and waits until it is ready.
func (t *trio) serve(i int, flags string) {
	t.t.Helper()
	m := t.hosts[t.names[i]]
	out, p := t.launch(i, "fairway server --service-cidr 10.96.0.0/16,fd00:10:96::/112 --bind-address "+t.address(i)+" "+flags)
	t.servers[i] = p
	eventually(t.t, m.name+": the server is ready", func() bool {
		if t.gone(p) {
			t.t.Fatalf("%s: the server ended:\n%s", m.name, out.String())
		}
		return strings.Contains(out.String(), "API server ready at")
	})
	if len(t.apis) > i {
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(m.dir, "lib", "admin.kubeconfig"))
	t.must(err)
	config.Dial, config.QPS = m.dial, -1
	api, err := kubernetes.NewForConfig(config)
	t.must(err)
	t.apis = append(t.apis, api)
}

func (t *trio) address(i int) string { return "10.77.0.1" + strconv.Itoa(i+1) }

// join starts a machine's agent.
func (t *trio) join(i int, how string) {
	t.t.Helper()
	_, t.agents[i] = t.launch(i, "fairway join "+how)
}

func (t *trio) launch(i int, line string) (*output, *program) {
	t.t.Helper()
	p := &program{}
	out, kill := t.hosts[t.names[i]].startWith("exec "+line, &p.pid)
	p.kill = kill
	return out, p
}

func (t *trio) gone(p *program) bool {
	return isGone(p.pid)
}

func isGone(pid int) bool {
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(state), ") Z ")
}

// kill ends a server at once.
func (t *trio) kill(i int) {
	t.t.Helper()
	t.servers[i].kill()
	t.servers[i] = nil
}

// end asks a program to end, and waits for that.
func (t *trio) end(p *program) {
	t.t.Helper()
	t.must(syscall.Kill(p.pid, syscall.SIGTERM))
	eventually(t.t, "the program ends", func() bool { return t.gone(p) })
	p.kill()
}

func (t *trio) signal(p *program, s syscall.Signal) {
	t.t.Helper()
	t.must(syscall.Kill(p.pid, s))
}

// write tries to write by a server.
func (t *trio) write(i int) error {
	ctx, cancel := context.WithTimeout(t.t.Context(), 30*time.Second)
	defer cancel()
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	_, err := t.apis[i].CoreV1().ConfigMaps("kube-system").Create(ctx, probe, metav1.CreateOptions{})
	return err
}

// works waits until a server takes writes.
func (t *trio) works(i int) {
	t.t.Helper()
	began := time.Now()
	eventually(t.t, t.names[i]+" takes writes", func() bool { return t.write(i) == nil })
	t.t.Logf("%s took writes after %s", t.names[i], time.Since(began).Round(100*time.Millisecond))
}

// goesOn is works, of a server that nothing was done to.
func (t *trio) goesOn(i int) {
	t.t.Helper()
	began := time.Now()
	t.works(i)
	t.slowest = max(t.slowest, time.Since(began))
}

// leader is the number of the server that leads; it waits for one.
func (t *trio) leader() (found int) {
	t.t.Helper()
	eventually(t.t, "one of the servers leads", func() bool {
		for i, p := range t.servers {
			if p == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(t.t.Context(), 30*time.Second)
			data, err := t.apis[i].CoreV1().RESTClient().Get().AbsPath(apiserver.MembersPath).DoRaw(ctx)
			cancel()
			var list []apiserver.Member
			if err != nil || json.Unmarshal(data, &list) != nil {
				continue
			}
			for _, m := range list {
				if found = int(m.Name[1] - '1'); m.Role == "leader" && t.servers[found] != nil {
					return true
				}
			}
		}
		return false
	})
	return found
}

// cutOff keeps ports of a machine from the others, in both directions, until what
// it returns is called.
func (t *trio) cutOff(i int, ports string) (heal func()) {
	t.t.Helper()
	m := t.hosts[t.names[i]]
	m.run(fmt.Sprintf(`nft 'table inet cut { chain in { type filter hook prerouting priority -400; iifname "eth0" tcp dport { %[1]s } drop; iifname "eth0" tcp sport { %[1]s } drop; }; }'`, ports))
	return func() { m.run("nft delete table inet cut") }
}

// setClock has a program's clock be that many hours ahead.
func (t *trio) setClock(i int, p *program, hours int) {
	t.t.Helper()
	t.hosts[t.names[i]].file("run/clock", strconv.Itoa(hours*3600), 0o644)
	t.signal(p, syscall.SIGUSR1)
}

// readySince is since when each machine has been ready; those that aren't are left
// out.
func (t *trio) readySince() map[string]time.Time {
	t.t.Helper()
	since := map[string]time.Time{}
	nodes, err := t.apis[0].CoreV1().Nodes().List(t.t.Context(), metav1.ListOptions{})
	t.must(err)
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				since[n.Name] = c.LastTransitionTime.Time
			}
		}
	}
	return since
}

// runs is the file of the program that a process runs.
func (t *trio) runs(p *program) string {
	t.t.Helper()
	file, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/exe")
	t.must(err)
	return file
}

// built is a program that an environment variable names.
func built(variable string) string {
	file, err := exec.LookPath(os.Getenv(variable))
	if err != nil {
		return ""
	}
	file, _ = filepath.Abs(file) // there is a working directory
	return file
}
