package lab_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/internal/nftrace"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// traced is what the test reads of trace's report.
type traced struct {
	Answer, Outcome, Node, Mode, Service string
	Endpoint                             struct {
		Pod, Node string
		Elsewhere bool
	}
	Packets []struct {
		Reply bool
		What  string
		Last  string
		Steps []struct {
			Table, Chain, Rule, Verdict string
			Ours, Legacy                bool
		}
	}
	Plane, NotChecked []string
}

// tracing is a lab with Services to trace connections to.
type tracing struct {
	*testing.T
	lab, kubeconfig, pod string
	node1                *netns.NS
	services             []netip.Addr // of the Service healthy, a family each
	mode                 string
	podNS                *netns.NS
	client               kubernetes.Interface
}

// TestTrace follows real connections in both families: one that is answered, one
// that a rule of somebody else's drops, and one that nobody makes on purpose; what
// is killed leaves nothing.
func TestTrace(t *testing.T) {
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) { tracesIn(t, mode) })
	}
}

func tracesIn(t *testing.T, mode string) {
	l := traceIn(t, mode)
	for _, ip := range l.services {
		l.answered(ip)
		l.droppedByAnother(ip)
	}
	if mode == legacyMode {
		l.droppedByLegacy()
	}
	l.droppedElsewhere()
	l.watches()
	l.killed()
	l.sideBySide()
	l.badInput()
}

// legacyMode is iptables mode with the old variant.
const legacyMode = "iptables-legacy"

func traceIn(t *testing.T, mode string) *tracing {
	c := config("trace")
	if c.Mode = mode; mode == legacyMode {
		c.Mode, c.AgentArgs = "iptables", []string{"--iptables-variant=legacy"}
	}
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	l := &tracing{T: t, lab: c.Name, kubeconfig: lab.Kubeconfig(c.Name), mode: mode, client: client}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := fairway("kubectl", "--kubeconfig", l.kubeconfig, "apply", "-f", filepath.Join("testdata", "causes.yaml")); code != 0 {
		t.Fatalf("apply: %s%s", out, stderr)
	}
	if l.node1, err = netns.Open(topology.HostNamespace(c.Name, "node1")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.node1.Close() })
	doctored{t, l.kubeconfig}.finds("", "svc/healthy")
	l.find(client)
	return l
}

// find finds a pod on node1, and the Service's addresses.
func (l *tracing) find(client kubernetes.Interface) {
	l.Helper()
	pods, err := client.CoreV1().Pods("default").List(l.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node1"})
	if err != nil || len(pods.Items) == 0 {
		l.Fatalf("pods of node1: %v, error %v", pods, err)
	}
	l.pod = pods.Items[0].Name
	if l.podNS = probe.NamespaceNear(netip.MustParseAddr(pods.Items[0].Status.PodIP), l.node1); l.podNS == nil {
		l.Fatal("the pod's network namespace isn't found")
	}
	l.Cleanup(func() { _ = l.podNS.Close() })
	s, err := client.CoreV1().Services("default").Get(l.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	for _, ip := range s.Spec.ClusterIPs {
		l.services = append(l.services, netip.MustParseAddr(ip))
	}
	if len(l.services) != 2 || s.Spec.Type != corev1.ServiceTypeClusterIP {
		l.Fatalf("the Service is %+v", s.Spec)
	}
}

// service is the address of a Service.
func (l *tracing) service(name string) netip.Addr {
	l.Helper()
	s, err := l.client.CoreV1().Services("default").Get(l.Context(), name, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return netip.MustParseAddr(s.Spec.ClusterIP)
}

// droppedByLegacy: the rule of a firewall that uses the old iptables is named, and so is a
// policy.
func (l *tracing) droppedByLegacy() {
	l.Helper()
	tables := func(args string) {
		l.Helper()
		c := exec.Command("iptables-legacy", strings.Fields(args)...)
		if err := errors.Join(l.node1.Start(c), c.Wait()); err != nil {
			l.Fatalf("iptables-legacy %s: %v", args, err)
		}
	}
	dropped := func(want string) {
		l.Helper()
		r, code := l.trace(target(l.services[0]), "--from", "pod/"+l.pod, "--send", "--timeout", "300ms")
		if code != 1 || r.Outcome != "dropped" || r.Answer != want {
			l.Errorf("exit code %d, want %s: %+v", code, want, r)
		}
	}
	tables("-N DOCKER-USER")
	tables("-I FORWARD -j DOCKER-USER")
	tables("-A DOCKER-USER -p tcp --dport 80 -j DROP")
	dropped("DROPPED on node1 by a rule of Docker, not Fairway's: ip filter DOCKER-USER (iptables-legacy): -p tcp -m tcp --dport 80 -j DROP (rule 1)")
	tables("-F DOCKER-USER")
	tables("-P FORWARD DROP")
	dropped("DROPPED on node1 by the policy of a chain not Fairway's: ip filter FORWARD (iptables-legacy)")
	tables("-P FORWARD ACCEPT")
}

// logger is who the kernel tells of traced packets in iptables-legacy.
func (l *tracing) logger() (name string) {
	l.Helper()
	if err := l.node1.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_log/2")
		name = strings.TrimSpace(string(text))
		return err
	}); err != nil {
		l.Fatal(err)
	}
	return name
}

// conntrackEnds reports whether conntrack says when connections end.
func (l *tracing) conntrackEnds() bool { return l.mode == "nftables" || l.mode == "iptables" }

// TestTraceBesideNetfilter: where netfilter isn't what translates, the data plane says
// which endpoint it chose, and rules of others are named all the same.
func TestTraceBesideNetfilter(t *testing.T) {
	for _, mode := range []string{"ebpf", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			l := traceIn(t, mode)
			for _, ip := range l.services {
				r, code := l.trace(target(ip), "--from", "pod/"+l.pod, "--send")
				if code != 0 || r.Outcome != "answered" || r.Mode != mode || !strings.HasPrefix(r.Endpoint.Pod, "default/hello-") {
					l.Errorf("trace to %s: exit code %d: %+v", ip, code, r)
				}
			}
			if mode == "ebpf" { // a relay's connections to endpoints are others than the client's
				l.droppedElsewhere()
				if out, stderr, code := fairway("trace", "--kubeconfig", l.kubeconfig, "svc/healthy", "--node", "node1"); code != 2 || !strings.Contains(stderr, "--send: in ebpf mode") {
					l.Errorf("somebody's connection: exit code %d: %s%s", code, out, stderr)
				}
			} else {
				l.killed()
			}
			r, code := l.trace("svc/unready", "--from", "pod/"+l.pod, "--send")
			if code != 1 || r.Outcome != "refused" || !strings.Contains(r.Answer, "the Service port has no endpoint to use") {
				l.Errorf("a refused connection: exit code %d: %+v", code, r)
			}
		})
	}
}

// trace runs the command.
func (l *tracing) trace(args ...string) (traced, int) {
	l.Helper()
	out, stderr, code := fairway(append([]string{"trace", "--kubeconfig", l.kubeconfig, "-o", "json"}, args...)...)
	var r traced
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		l.Fatalf("trace %v: exit code %d: %v: %s%s", args, code, err, out, stderr)
	}
	return r, code
}

func target(ip netip.Addr) string { return netip.AddrPortFrom(ip, 80).String() }

// answered: a connection from a pod is answered, by a pod, through Fairway's rules.
func (l *tracing) answered(ip netip.Addr) {
	l.Helper()
	mode := strings.TrimSuffix(l.mode, "-legacy")
	r, code := l.trace(target(ip), "--from", "pod/"+l.pod, "--send")
	if code != 0 || r.Outcome != "answered" || r.Node != "node1" || r.Mode != mode || r.Service != "default/healthy:http" || !strings.HasPrefix(r.Endpoint.Pod, "default/hello-") {
		l.Errorf("trace to %s: exit code %d: %+v", ip, code, r)
	}
	ours, reply, translated := false, false, false
	for _, p := range r.Packets {
		reply = reply || p.Reply && p.What == "SYN ACK" && p.Last == "postrouting"
		for _, s := range p.Steps {
			ours = ours || s.Ours && s.Rule != "" && s.Legacy == (l.mode == legacyMode)
			translated = translated || s.Verdict == "translated" && strings.Contains(s.Rule, "destination "+target(ip)+" -> ")
		}
	}
	translated = translated || mode == "ipvs" // which sends another packet
	if !ours || !reply || !translated {
		l.Errorf("trace to %s: own rules %t, an answer %t, translated %t: %+v", ip, ours, reply, translated, r)
	}
}

// droppedByAnother: the rule of a firewall is named.
func (l *tracing) droppedByAnother(ip netip.Addr) {
	l.Helper()
	remove := dropWith(l.T, l.node1, "firewalld", "filter_FORWARD", &expr.Verdict{Kind: expr.VerdictDrop})
	defer remove()
	r, code := l.trace(target(ip), "--from", "pod/"+l.pod, "--send", "--timeout", "300ms")
	if want := "DROPPED on node1 by a rule of firewalld, not Fairway's: inet firewalld filter_FORWARD: drop"; code != 1 || r.Outcome != "dropped" || !strings.HasPrefix(r.Answer, want) {
		l.Errorf("trace to %s with a firewall: exit code %d: %+v", ip, code, r)
	}
}

// droppedElsewhere: a rule of the endpoint's node is named, and so is the kernel's reason.
func (l *tracing) droppedElsewhere() {
	l.Helper()
	name := l.lab
	node2, err := netns.Open(topology.HostNamespace(name, "node2"))
	if err != nil {
		l.Fatal(err)
	}
	defer node2.Close() //nolint:errcheck // of a test
	remove := dropWith(l.T, node2, "firewalld", "filter_FORWARD", &expr.Verdict{Kind: expr.VerdictDrop})
	l.elsewhere("DROPPED on node2 by a rule of firewalld, not Fairway's: inet firewalld filter_FORWARD: drop")
	remove()
	forwarding(l.T, node2, "0")
	l.elsewhere("DROPPED on node2 by the kernel, on its way to 10.")
	forwarding(l.T, node2, "1")
}

// elsewhere traces until the connection is one to the other node's endpoint.
func (l *tracing) elsewhere(want string) {
	l.Helper()
	eventually(l.T, want, func() bool {
		r, _ := l.trace(target(l.services[0]), "--from", "pod/"+l.pod, "--send", "--timeout", "300ms")
		return strings.HasPrefix(r.Answer, want)
	})
}

// dropWith adds a rule to a firewall's chain.
func dropWith(t *testing.T, node *netns.NS, table, chain string, rule ...expr.Any) (remove func()) {
	t.Helper()
	own := &nftables.Table{Family: nftables.TableFamilyINet, Name: table}
	change := func(what func(*nftables.Conn)) {
		t.Helper()
		conn, err := nftables.New(nftables.WithNetNSFd(node.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		what(conn)
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	change(func(conn *nftables.Conn) {
		conn.AddTable(own)
		c := conn.AddChain(&nftables.Chain{
			Table: own, Name: chain, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityRef(10),
		})
		conn.AddRule(&nftables.Rule{Table: own, Chain: c, Exprs: rule})
	})
	return func() { change(func(conn *nftables.Conn) { conn.DelTable(own) }) }
}

// connect connects to the Service from the node until done is closed.
func (l *tracing) connect(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
		}
		_ = l.node1.Do(func() error {
			conn, err := net.DialTimeout("tcp", target(l.services[0]), time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		}) // what becomes of it is trace's to say
	}
}

// watches: somebody else's connection is followed.
func (l *tracing) watches() {
	l.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); l.connect(done) }()
	r, code := l.trace("svc/healthy", "--from", "node/node1")
	close(done)
	<-ended
	if code != 0 || r.Outcome != "answered" || !strings.HasPrefix(r.Endpoint.Pod, "default/hello-") {
		l.Errorf("somebody's connection: exit code %d: %+v", code, r)
	}
	if r, code := l.trace("svc/selector", "--node", "node1", "--wait", "100ms"); code != 3 || r.Outcome != "not seen" {
		l.Errorf("nobody's connection: exit code %d: %+v", code, r)
	}
}

// killed: a trace that is killed leaves no table.
func (l *tracing) killed() {
	l.Helper()
	before := l.logger()
	c := exec.Command(os.Args[0], "trace", "--kubeconfig", l.kubeconfig, "svc/selector", "--node", "node1")
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	eventually(l.T, "the trace has its table", func() bool { return l.tables() == 1 })
	if during := l.logger(); (during != before) != (l.mode == legacyMode) {
		l.Errorf("the logger is %s, before the trace it was %s", during, before)
	}
	if err := c.Process.Kill(); err != nil {
		l.Fatal(err)
	}
	_ = c.Wait() // it was killed
	eventually(l.T, "the table is gone, and the logger as before", func() bool { return l.tables() == 0 && l.logger() == before })
}

// tables counts those of traces on the node.
func (l *tracing) tables() (n int) {
	l.Helper()
	conn, err := nftables.New(nftables.WithNetNSFd(l.node1.Fd()))
	if err != nil {
		l.Fatal(err)
	}
	list, err := conn.ListTables()
	if err != nil {
		l.Fatal(err)
	}
	for _, one := range list {
		if strings.HasPrefix(one.Name, nftrace.TablePrefix) {
			n++
		}
	}
	return n
}

// sideBySide: traces don't disturb each other.
func (l *tracing) sideBySide() {
	l.Helper()
	const many = 4
	codes := make(chan string, many)
	for i := range many {
		go func() {
			out, stderr, code := fairway("trace", "--kubeconfig", l.kubeconfig, target(l.services[i%2]), "--from", "pod/"+l.pod, "--send")
			if code == 0 && strings.HasPrefix(out, "ANSWERED") && strings.Count(out, "\n request ") == 1 {
				out = ""
			}
			codes <- out + stderr
		}()
	}
	for range many {
		if failed := <-codes; failed != "" {
			l.Errorf("one of several traces: %s", failed)
		}
	}
}

// badInput: each mistake is one line.
func (l *tracing) badInput() {
	l.Helper()
	for args, want := range map[string]string{
		"svc/none":                                           "there is no Service default/none",
		"svc/healthy --from pod/none":                        "--from: there is no pod default/none",
		"svc/healthy --from node/none":                       `--from: there is no node "none"`,
		"svc/healthy --from deployment/x":                    "want pod/NAME, node/NAME or an IP address",
		"svc/healthy":                                        "--node: must be one of node1, node2",
		"svc/healthy --node none":                            "no agent of node none answers",
		"svc/healthy --send --from 203.0.113.9 --node node1": "isn't on this machine",
		"10.1.2.3":                                           "no address and port to connect to",
		"svc/healthy --wait 1h":                              "at most 10m",
		"svc/healthy -o text":                                "must be wide, json or yaml",
	} {
		out, stderr, code := fairway(append([]string{"trace", "--kubeconfig", l.kubeconfig}, strings.Fields(args)...)...)
		if code != 2 || out != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			l.Errorf("trace %s: exit code %d: %s%s, want %q", args, code, out, stderr, want)
		}
	}
}
