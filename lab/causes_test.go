package lab_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/nftables"
	"github.com/moby/ipvs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/topology"
)

// TestCauses: doctor names the most frequent causes, each provoked in a lab, and
// finds nothing where all is well.
func TestCauses(t *testing.T) { causesIn(t, "nftables", false) }

func causesIn(t *testing.T, mode string, onNodes bool) {
	c := config("causes")
	c.Mode = mode
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), hello(2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := fairway("kubectl", "--kubeconfig", lab.Kubeconfig(c.Name), "apply", "-f", filepath.Join("testdata", "causes.yaml")); code != 0 {
		t.Fatalf("apply: %s%s", out, stderr)
	}
	d := doctored{t, lab.Kubeconfig(c.Name)}
	node1, err := netns.Open(topology.HostNamespace(c.Name, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	defer node1.Close() //nolint:errcheck // of a test

	d.finds("", "svc/healthy")
	showsFlows(t, client, lab.Kubeconfig(c.Name), node1)
	withoutAPI(t, client, c.Name)
	for _, cause := range []struct{ code, question string }{
		{"FW101", "svc/selector"},
		{"FW102", "svc/unready"},
		{"FW102", "svc/unready6"},
		{"FW103", "svc/deaf"},
		{"FW104", "svc/named"},
		{"FW106", "svc/spoken"},
		{"FW107", "svc/misfit"},
		{"FW108", "svc/healthy:81"},
		{"FW109", "svc/healty"},
		{"FW113", "svc/inner --from node/node1"},
		{"FW114", "svc/outer --from 198.51.100.9 --node node1"},
		{"FW116", "svc/pending"},
	} {
		d.finds(cause.code, cause.question)
	}
	forwarding(t, node1, "0")
	d.finds("FW123", "svc/healthy --node node1")
	forwarding(t, node1, "1")
	remove := dropForwarded(t, node1)
	d.finds("FW117", "svc/healthy --node node1")
	remove()
	d.finds("", "svc/healthy")
	if onNodes { // they take half a minute
		causesOnNodes(t, d, client, c, node1)
	}
}

// doctored asks doctor about a cluster.
type doctored struct {
	*testing.T
	kubeconfig string
}

// finds waits until the first problem that doctor names has a code; "" is none.
func (d doctored) finds(code, question string) {
	d.Helper()
	args := append([]string{"doctor", "--kubeconfig", d.kubeconfig, "-o", "json"}, strings.Fields(question)...)
	var got, out, stderr string
	var exit int
	defer func() {
		if d.Failed() {
			d.Logf("doctor %s: code %q, exit code %d, want %q:\n%s%s", question, got, exit, code, out, stderr)
		}
	}()
	eventually(d.T, "doctor "+question+" finds "+code, func() bool {
		out, stderr, exit = fairway(args...)
		got = firstProblem(out)
		if code == "" {
			return exit == 0
		}
		return got == code && exit == 1
	})
}

// firstProblem is the code of the first finding that is no note.
func firstProblem(report string) string {
	var r struct {
		Results []struct {
			Findings []struct{ Code, Grade string }
		}
	}
	if json.Unmarshal([]byte(report), &r) != nil {
		return "no report"
	}
	for _, result := range r.Results {
		for _, f := range result.Findings {
			if f.Grade != "note" {
				return f.Code
			}
		}
	}
	return ""
}

// forwarding switches a node's forwarding of IPv4 packets.
func forwarding(t *testing.T, node *netns.NS, value string) {
	t.Helper()
	if err := node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0) }); err != nil {
		t.Fatal(err)
	}
}

// dropForwarded is a firewall that drops forwarded packets by its policy.
func dropForwarded(t *testing.T, node *netns.NS) (remove func()) {
	t.Helper()
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"}
	change := func(what func(*nftables.Conn)) {
		t.Helper()
		if err := node.Do(func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			what(conn)
			return conn.Flush()
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(conn *nftables.Conn) {
		conn.AddTable(table)
		drop := nftables.ChainPolicyDrop
		conn.AddChain(&nftables.Chain{
			Table: table, Name: "forward", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop,
		})
	})
	return func() { change(func(conn *nftables.Conn) { conn.DelTable(table) }) }
}

// causesOnNodes are those that are provoked on the nodes: each is taken back before the next.
func causesOnNodes(t *testing.T, d doctored, client kubernetes.Interface, c lab.Config, node1 *netns.NS) {
	t.Helper()
	node2, err := netns.Open(topology.HostNamespace(c.Name, "node2"))
	if err != nil {
		t.Fatal(err)
	}
	defer node2.Close() //nolint:errcheck // of a test
	pod := podOn(t, client, "node1")
	asPod := " --from pod/" + pod.Name

	d.ranged(client)
	d.finds("FW115", "svc/ranged --from 198.51.100.9 --node node1")
	d.finds("FW111", "svc/healthy --from pod/"+d.outsider(client))

	forget := rules(t, node1, "chain o {\n type filter hook output priority -500\n udp dport 53 drop\n}\nchain p {\n type filter hook prerouting priority -500\n udp dport 53 drop\n}")
	d.finds("FW110", "svc/healthy --node node1")
	d.finds("FW110", "svc/healthy"+asPod)
	forget()
	forget = rules(t, node1, "chain p {\n type filter hook prerouting priority -500\n meta l4proto { tcp, udp } th dport 53 drop\n}")
	d.finds("FW110", "svc/healthy"+asPod) // of pods alone: the node's own packets don't pass it
	forget()

	forget = rules(t, node2, "chain f {\n type filter hook forward priority 10; policy drop;\n ct state established accept\n}")
	d.finds("FW117", "svc/healthy") // a node that only packets of some clients pass
	forget()
	forget = rules(t, node2, "chain f {\n type filter hook forward priority 10\n tcp dport 80 reject with icmpx admin-prohibited\n}")
	d.finds("FW118", "svc/healthy"+asPod) // the endpoint's node says so
	forget()
	forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n meta length > 1200 drop\n}")
	d.finds("FW128", "svc/healthy"+asPod)
	forget()

	route := strings.TrimSpace(run(t, node1, "ip route show 10.244.2.0/24"))
	run(t, node1, "ip route replace unreachable 10.244.2.0/24")
	d.finds("FW129", "svc/healthy --node node1")
	run(t, node1, "ip route replace blackhole 10.244.2.0/24")
	d.finds("FW129", "svc/healthy"+asPod)
	run(t, node1, "ip route replace "+route)
	forget = rules(t, node2, "chain p {\n type filter hook prerouting priority -500\n iifname eth0 ip saddr 172.30.0.0/16 ip daddr 10.244.0.0/16 drop\n}")
	d.finds("FW129", "svc/healthy --node node1")
	forget()

	forget = rules(t, node2, "chain p {\n type filter hook prerouting priority -500\n iifname eth0 ip length > 1000 drop\n}")
	d.finds("FW128", "svc/healthy --node node1")
	forget()

	forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n tcp dport 80 reject with icmpx admin-prohibited\n}")
	d.finds("FW118", "svc/healthy --node node1")
	forget()

	if c.Mode == "nftables" || c.Mode == "iptables" { // others have their own tables, or no packet of a pod to itself
		own := strings.TrimSpace(run(t, node1, "ip -o route get "+pod.Status.PodIP))
		_, rest, _ := strings.Cut(own, " dev ")
		device, _, _ := strings.Cut(rest, " ")
		forget = rules(t, node1, "chain f {\n type filter hook forward priority 10\n iifname "+device+" oifname "+device+" drop\n}")
		d.finds("FW125", "svc/healthy"+asPod)
		forget()

		s, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		flow := " -p tcp -s " + pod.Status.PodIP + " -d " + s.Spec.ClusterIP + " --sport 5353 --dport 80"
		run(t, node1, "conntrack -I"+flow+" --timeout 100 --state SYN_SENT -r "+s.Spec.ClusterIP+" -q "+pod.Status.PodIP+" --reply-port-src 80 --reply-port-dst 5353")
		d.finds("FW127", "svc/healthy"+asPod)
		run(t, node1, "conntrack -D"+flow)
	}
	d.finds("", "svc/healthy"+asPod)
	kernelCauses(t, d, client, c.Mode, node1)
}

// ranged makes a Service of a load balancer that lets some clients in.
func (d doctored) ranged(client kubernetes.Interface) {
	d.Helper()
	s, err := client.CoreV1().Services("default").Create(d.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "ranged"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerSourceRanges: []string{"203.0.113.0/24"},
			Selector: map[string]string{"app": "hello"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.80"}}
		_, err = client.CoreV1().Services("default").UpdateStatus(d.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		d.Fatal(err)
	}
}

// outsider makes a pod that asks other nameservers.
func (d doctored) outsider(client kubernetes.Interface) string {
	d.Helper()
	p, err := client.CoreV1().Pods("default").Create(d.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "outsider"},
		Spec: corev1.PodSpec{
			NodeName: "node1", DNSPolicy: corev1.DNSDefault,
			Containers: []corev1.Container{{Name: "c", Image: "hello", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	eventually(d.T, "the pod has an address", func() bool {
		p, err = client.CoreV1().Pods("default").Get(d.Context(), p.Name, metav1.GetOptions{})
		return err == nil && p.Status.PodIP != ""
	})
	return p.Name
}

// podOn is a pod of a node.
func podOn(t *testing.T, client kubernetes.Interface, node string) corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, LabelSelector: "app=hello"})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("pods of %s: %v, error %v", node, list, err)
	}
	return list.Items[0]
}

// rules has a node's nf_tables have a table of somebody's.
func rules(t *testing.T, node *netns.NS, chains string) (remove func()) {
	t.Helper()
	change := func(text string) {
		t.Helper()
		c := exec.Command("nft", "-f", "-")
		c.Stdin = strings.NewReader(text)
		if err := errors.Join(node.Start(c), c.Wait()); err != nil {
			t.Fatalf("nft: %v: %s", err, text)
		}
	}
	change("table inet somebody {\n" + chains + "\n}\n")
	return func() { change("delete table inet somebody\n") }
}

// run runs a command in a node's network namespace.
func run(t *testing.T, node *netns.NS, command string) string {
	t.Helper()
	words := strings.Fields(command)
	c := exec.Command(words[0], words[1:]...)
	var out strings.Builder
	c.Stdout = &out
	if err := errors.Join(node.Start(c), c.Wait()); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out.String()
}

// kernelCauses are those of a node's kernel: objects that somebody takes away, and a
// connection table without room.
func kernelCauses(t *testing.T, d doctored, client kubernetes.Interface, mode string, node1 *netns.NS) {
	t.Helper()
	s, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range s.Spec.ClusterIPs {
		take := taker(mode, node1, netip.MustParseAddr(text))
		if take == nil {
			break // a mode whose objects are its process's own
		}
		end := again(take)
		d.finds("FW122", "svc/healthy --node node1")
		eventually(t, "explain says that the kernel differs", func() bool {
			out, _, code := fairway("explain", "svc/healthy", "--node", "node1", "--kubeconfig", d.kubeconfig)
			return code == 2 && strings.Contains(out, "BUT THE KERNEL of node1") && strings.Contains(out, "missing") && strings.Contains(out, text)
		})
		end()
		d.finds("", "svc/healthy --node node1") // the agent has repaired it
	}
	if mode != "ipvs" && filled(t, node1) { // the virtual machine is slow
		d.finds("FW126", "svc/healthy --node node1")
		run(t, node1, "conntrack -F")
	}
	d.finds("", "svc/healthy --node node1")
}

// again does something ten times a second, as a program does that fights with the agent,
// until it is ended.
func again(do func()) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			do()
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}

// taker takes away what leads packets to an address on a node, if it is there; nil where
// nobody but the agent can.
func taker(mode string, node *netns.NS, addr netip.Addr) func() {
	family, suffix := "4", ""
	if addr.Is6() {
		family, suffix = "6", "6"
	}
	shell := func(script string) func() {
		return func() {
			c := exec.Command("sh", "-c", script)
			if node.Start(c) == nil {
				_ = c.Wait() // the agent may not have put it back yet
			}
		}
	}
	switch mode {
	case "nftables":
		return shell(fmt.Sprintf("nft delete element inet fairway from-pod%s '{ %s . tcp . 80 }'", family, addr))
	case "iptables":
		return shell(fmt.Sprintf("ip%[1]stables-save -t nat | grep -- '-A KUBE-SERVICES -d %[2]s/' | sed s/^-A/-D/ | while read -r rule; do eval ip%[1]stables -t nat $rule; done", suffix, addr))
	case "ipvs":
		return func() { _ = node.Do(func() error { return takeVirtualServers(addr) }) }
	case "ebpf":
		return func() { takeFrontends(addr) }
	}
	return nil
}

// takeVirtualServers removes an address from IPVS.
func takeVirtualServers(addr netip.Addr) error {
	h, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer h.Close()
	list, err := h.GetServices()
	for _, s := range list {
		if a, ok := netip.AddrFromSlice(s.Address); ok && a.Unmap() == addr {
			err = errors.Join(err, h.DelService(s))
		}
	}
	return err
}

// takeFrontends removes an address from the maps of ebpf mode, of all nodes. Those of
// frontends are each in an array of one, in which it is replaced when it grows.
func takeFrontends(addr netip.Addr) {
	arrays, _ := filepath.Glob("/sys/fs/bpf/fairway/*/v1/frontends")
	for _, path := range arrays {
		array, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			continue // its lab has just gone
		}
		var id uint32
		if err := array.Lookup(uint32(0), &id); err == nil {
			takeFrom(ebpf.MapID(id), addr)
		}
		_ = array.Close()
	}
}

func takeFrom(id ebpf.MapID, addr netip.Addr) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return // it was replaced
	}
	defer m.Close() //nolint:errcheck // of a test
	var found [][]byte
	var key, value []byte
	for entries := m.Iterate(); entries.Next(&key, &value); {
		if bytes.Contains(key, addr.AsSlice()) {
			found = append(found, bytes.Clone(key))
		}
	}
	for _, key := range found {
		_ = m.Delete(key) // the agent may be about to put it back
	}
}

// mostEntries is how large a connection table is filled.
const mostEntries = 300_000

// filled fills nine tenths of a node's connection table, whose limit is the machine's.
// It returns false where that limit is too high for a test.
func filled(t *testing.T, node *netns.NS) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if most > mostEntries {
		t.Logf("a connection table of %d entries isn't filled", most)
		return false
	}
	var lines bytes.Buffer
	for i := range most * 93 / 100 {
		client, port := fmt.Sprintf("198.18.%d.1", i/60000), 1024+i%60000
		fmt.Fprintf(&lines, "-A -p tcp -s %[1]s -d 198.19.0.1 --sport %[2]d --dport 80 --timeout 600 --state ESTABLISHED -r 198.19.0.1 -q %[1]s --reply-port-src 80 --reply-port-dst %[2]d\n", client, port)
	}
	path := filepath.Join(t.TempDir(), "connections")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, node, "conntrack -R "+path)
	return true
}
