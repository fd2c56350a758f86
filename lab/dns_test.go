package lab_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// clusterDNS is the DNS Service's address in a lab.
const clusterDNS = "10.96.0.10"

// dnsLab makes a lab with two nodes and the Service web, and returns the name of
// a pod on the first node.
func dnsLab(t *testing.T, name, mode string) (lab.Config, string) {
	t.Helper()
	c := config(name)
	c.Mode = mode
	return c, upWithWeb(t, c)
}

// upWithWeb makes a lab with the Service web, and returns the name of a pod on
// the first node.
func upWithWeb(t *testing.T, c lab.Config) (pod string) {
	t.Helper()
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	web.Spec.Selector = map[string]string{"app": "hello"}
	web.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod runs on node1", func() bool {
		pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, p := range pods.Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
				if p.Spec.NodeName == "node1" {
					pod = p.Name
				}
			}
		}
		return running == 2 && pod != ""
	})
	return pod
}

// TestNames asks with the programs that people ask with, in every mode that
// this kernel has; the agents' own server and each data plane must get along.
func TestNames(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables", "ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			c, pod := dnsLab(t, "dns-"+mode, mode)
			checkCommand(t, c)
			for _, from := range []string{pod, "node1", "client"} {
				for command, want := range map[string]string{
					"nslookup kubernetes.default":                                 "Name:\tkubernetes.default.svc.cluster.local",
					"dig +short SRV _http._tcp.web.default.svc.cluster.local":     "0 100 80 web.default.svc.cluster.local.",
					"dig +short +tcp A web.default.svc.cluster.local":             "10.96.",
					"dig +short AAAA kubernetes.default.svc.cluster.local":        "",
					"curl -sS --retry 20 --retry-connrefused http://web/hostname": "hello-",
				} {
					args := append([]string{"lab", "exec", "--name", c.Name, from, "--"}, strings.Fields(command)...)
					var out, stderr string
					var code int
					for late := range wait.Tries(waitTimeout) {
						out, stderr, code = fairway(args...)
						if code == 0 && strings.Contains(out, want) {
							break
						}
						if late {
							t.Errorf("%s from %s: code %d, %q, %q; want %q", command, from, code, out, stderr, want)
							break
						}
					}
				}
			}
		})
	}
}

// checkCommand checks that a container's own command finds the cluster's DNS.
func checkCommand(t *testing.T, c lab.Config) {
	t.Helper()
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asks"}}
	pod.Spec.Containers = []corev1.Container{{Name: "asks", Image: "none", Command: []string{"sh", "-c", "curl -sS --retry 20 --retry-all-errors http://web/hostname; exec sleep 1000"}}}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(lab.Dir(c.Name), "pods", "default_asks_asks.log")
	eventually(t, "a pod's command finds http://web", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), "hello-")
	})
}

// asker asks for a Service's name from inside a pod, always from new ports.
type asker struct {
	ns      *netns.NS
	timeout time.Duration
}

func newAsker(t *testing.T, c lab.Config, pod string) *asker {
	t.Helper()
	ns, err := netns.Open(topology.PodNamespace(c.Name, "default."+pod))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return &asker{ns, waitTimeout / 2}
}

// resolves is a pod's asker, once both nodes answer their pods themselves. Only then is
// anything asked: a question that is lost before takes as long as its time-out.
func resolves(t *testing.T, c lab.Config, pod string) *asker {
	t.Helper()
	for _, node := range []string{"node1", "node2"} {
		eventually(t, node+" answers itself", func() bool { return holds(c, node) })
	}
	a := newAsker(t, c, pod)
	eventually(t, "names resolve", func() bool { return a.ask() == nil })
	return a
}

func (a *asker) ask() error {
	_, err := a.askFrom()
	return err
}

// askFrom tells from what port it has asked.
func (a *asker) askFrom() (port uint16, err error) {
	answer, port, err := a.exchange("web.default.svc.cluster.local.")
	if err == nil && len(answer.Answer) != 1 {
		err = fmt.Errorf("the answer is %s without records", dns.RcodeToString[answer.Rcode])
	}
	return port, err
}

// exchange asks for the address of a name.
func (a *asker) exchange(name string) (answer *dns.Msg, port uint16, err error) {
	var conn net.Conn
	err = a.ns.Do(func() (err error) {
		conn, err = net.Dial("udp", net.JoinHostPort(clusterDNS, "53"))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	q := new(dns.Msg).SetQuestion(name, dns.TypeA)
	answer, _, err = (&dns.Client{Timeout: a.timeout}).ExchangeWithConn(q, &dns.Conn{Conn: conn})
	return answer, conn.LocalAddr().(*net.UDPAddr).AddrPort().Port(), errors.Join(err, conn.Close())
}

// log is what a node's agent has logged.
func log(t *testing.T, c lab.Config, node string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(lab.Dir(c.Name), "agent-"+node+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// holds reports whether a node answers questions to the DNS Service itself.
func holds(c lab.Config, node string) bool {
	out, code := leases(c, node)
	return code == 0 && strings.Contains(out, clusterDNS)
}

// yields reports whether a node leaves questions to others.
func yields(c lab.Config, node string) bool {
	out, code := leases(c, node)
	return code == 0 && !strings.Contains(out, clusterDNS)
}

func leases(c lab.Config, node string) (list string, code int) {
	list, _, code = fairway("lab", "exec", "--name", c.Name, node, "--", "nft", "list", "set", "inet", "fairway-dns", "leases4")
	return list, code
}

// TestRestartLosesNoQuestion restarts an agent while a pod of its node asks all
// the time: every question is answered, by this node or by the other.
func TestRestartLosesNoQuestion(t *testing.T) {
	c, pod := dnsLab(t, "dns-restart", "nftables")
	began := time.Now()
	a := resolves(t, c, pod)
	q := a.askAlways(t, 1)
	settle(t, began)
	for range 3 {
		pid := agentOf(t, c, "node1")
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next agent's server has the address", func() bool {
			now := agentOf(t, c, "node1")
			return now != 0 && now != pid && holds(c, "node1")
		})
	}
	q.check(t, c)
	if q.again > 0 {
		t.Errorf("%d questions had to be asked again", q.again)
	}
}

// TestFallBack has a node's server not be reached: then questions go to the
// other node's, for as long as that is so.
func TestFallBack(t *testing.T) {
	for what, rule := range map[string]string{
		"everywhere":               "meta l4proto { tcp, udp } th dport { 53, 10053 }",
		"at the Service's address": "meta l4proto { tcp, udp } th dport 53",
	} {
		t.Run(what, func(t *testing.T) {
			c, pod := dnsLab(t, fmt.Sprintf("dns-fall-%d", len(what)), "nftables")
			a := resolves(t, c, pod)
			nft := func(command string) {
				if _, stderr, code := fairway("lab", "exec", "--name", c.Name, "node1", "--", "nft", command); code != 0 {
					t.Fatalf("nft %s: %s", command, stderr)
				}
			}
			nft("table inet fault { chain input { type filter hook input priority 0; " + rule + " drop; }; }")
			eventually(t, "the node gives the address away", func() bool {
				return strings.Contains(log(t, c, "node1"), "DNS on this node fails") && yields(c, "node1")
			})
			answered := 0
			a.timeout = 5 * time.Second // one that is lost shall leave time for others
			for range wait.Tries(8 * time.Second) {
				if a.ask() == nil {
					answered++
				}
			}
			if answered == 0 {
				t.Error("no question was answered by the other node")
			}
			if strings.Contains(log(t, c, "node1"), "DNS is ready again") {
				t.Error("the node's own server was used again although it couldn't be reached")
			}
			nft("delete table inet fault")
			eventually(t, "the node answers itself again", func() bool { return holds(c, "node1") && strings.Contains(log(t, c, "node1"), "DNS is ready again") })
			a.timeout = waitTimeout / 2
			if err := a.ask(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerAlone runs `fairway dns` against an API, at a port of its own and
// all addresses, with an upstream that nobody is.
func TestServerAlone(t *testing.T) {
	c := config("dns-alone")
	up(t, c)
	said := filepath.Join(t.TempDir(), "log")
	stderr, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(os.Args[0], "dns", "--kubeconfig", lab.Kubeconfig(c.Name), "--listen", "[::]:15353",
		"--dns-upstream", "127.0.0.1:1", "--dns-metrics-bind-address", "127.0.0.1:19154")
	server.Stderr = stderr
	if err := errors.Join(server.Start(), stderr.Close()); err != nil {
		t.Fatal(err)
	}
	complains := func() (text string, times int) {
		read, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		return string(read), strings.Count(string(read), "upstream DNS servers don't answer")
	}
	defer func() {
		if err := errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait()); err != nil {
			t.Error(err)
		}
		if text, times := complains(); times != 1 || strings.Contains(text, "HINFO") {
			t.Errorf("it should say once, and clearly, that upstreams don't answer:\n%s", text)
		}
	}()
	dig := func(args ...string) string {
		out, err := exec.Command("dig", append([]string{"-p", "15353", "+tries=1", "+time=30"}, args...)...).CombinedOutput()
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	eventually(t, "it answers", func() bool {
		return strings.Contains(dig("@127.0.0.1", "kubernetes.default.svc.cluster.local"), "NOERROR")
	})
	for args, want := range map[string]string{
		"@127.0.0.1 +short A kubernetes.default.svc.cluster.local":              "10.96.0.1\n",
		"@127.0.0.2 +short +nocookie A kubernetes.default.svc.cluster.local":    "10.96.0.1\n",
		"@::1 +short +nocookie A kubernetes.default.svc.cluster.local":          "10.96.0.1\n",
		"@::1 +short +tcp SRV _https._tcp.kubernetes.default.svc.cluster.local": "0 100 443 kubernetes.default.svc.cluster.local.\n",
		"@127.0.0.2 +short -x 10.96.0.1":                                        "kubernetes.default.svc.cluster.local.\n",
		"@127.0.0.1 nothing.default.svc.cluster.local":                          "NXDOMAIN",
		"@127.0.0.1 example.com":                                                "SERVFAIL",
	} {
		if got := dig(strings.Fields(args)...); !strings.Contains(got, want) {
			t.Errorf("dig %s: got %q, want %q", args, got, want)
		}
	}
	eventually(t, "it says that upstreams don't answer", func() bool { _, times := complains(); return times > 0 })
	metrics, err := exec.Command("curl", "-sS", "http://127.0.0.1:19154/metrics").CombinedOutput()
	if err != nil || !strings.Contains(string(metrics), `coredns_dns_responses_total{plugin="fairway",rcode="NXDOMAIN",server="dns://:15353",view="",zone="."}`) {
		t.Errorf("direct answers aren't counted (%v):\n%s", err, metrics)
	}
}
