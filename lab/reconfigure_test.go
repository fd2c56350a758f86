package lab_test

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/lab"
)

// reconfiguration is a change of one field of the configuration file.
type reconfiguration struct {
	field    string
	from, to string   // in the file, once
	modes    []string // nil: all
	back     string   // what is put there afterwards; "": from
	inForce  func(c *cluster, t *testing.T) bool
}

// reconfigurations are of all fields that a file may change and packets, or those
// who look at the node, tell of.
var reconfigurations = []reconfiguration{
	{field: "nodePortAddresses", from: "nodePortAddresses: null", to: "nodePortAddresses: [172.30.0.0/24]",
		inForce: func(c *cluster, t *testing.T) bool { return !c.reaches(t, "client", c.nodePort6(t)) }},
	{field: "nodePortAddresses with localhost", from: "nodePortAddresses: null", to: `nodePortAddresses: ["127.0.0.0/8", "172.30.0.0/24"]`, modes: []string{"nftables"},
		inForce: func(c *cluster, t *testing.T) bool { return c.reaches(t, "node1", c.localNodePort()) }},
	{field: "iptables.localhostNodePorts", from: "localhostNodePorts: null", to: "localhostNodePorts: false", modes: []string{"iptables"},
		inForce: func(c *cluster, t *testing.T) bool { return !c.reaches(t, "node1", c.localNodePort()) }},
	{field: "iptables.masqueradeBit", from: "masqueradeBit: null", to: "masqueradeBit: 7", modes: []string{"iptables"}, inForce: (*cluster).marksBit7},
	{field: "iptables.masqueradeAll", from: "iptables:\n  localhostNodePorts: null\n  masqueradeAll: false", to: "iptables:\n  localhostNodePorts: null\n  masqueradeAll: true",
		modes: []string{"iptables", "ebpf", "ipvs"}, inForce: (*cluster).masquerades},
	{field: "nftables.masqueradeAll", from: "nftables:\n  masqueradeAll: false", to: "nftables:\n  masqueradeAll: true", modes: []string{"nftables"}, inForce: (*cluster).masquerades},
	{field: "clusterCIDR", from: `clusterCIDR: "`, to: `clusterCIDR: "10.99.0.0/16,fd99::/64" # `, modes: []string{"nftables", "iptables", "ipvs", "ebpf"}, inForce: (*cluster).masquerades},
	{field: "ipvs.scheduler", from: `scheduler: ""`, to: "scheduler: lc", modes: []string{"ipvs"},
		inForce: func(c *cluster, t *testing.T) bool {
			return leastConnections.MatchString(c.runs(t, "cat /proc/net/ip_vs"))
		}},
	{field: "conntrack.udpStreamTimeout", from: "udpStreamTimeout: 0s", to: "udpStreamTimeout: 100s", back: "udpStreamTimeout: 120s", // 0s leaves what is
		inForce: func(c *cluster, t *testing.T) bool {
			return strings.TrimSpace(c.runs(t, "cat /proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream")) == "100"
		}},
	{field: "healthzBindAddress", from: `healthzBindAddress: ""`, to: "healthzBindAddress: 0.0.0.0:10266",
		inForce: func(c *cluster, t *testing.T) bool {
			return c.get(t, "node1", "127.0.0.1:10266/healthz") == http.StatusOK && c.get(t, "node1", "127.0.0.1:10256/healthz") == 0
		}},
	{field: "metricsBindAddress", from: `metricsBindAddress: ""`, to: "metricsBindAddress: 127.0.0.1:10259",
		inForce: func(c *cluster, t *testing.T) bool {
			return c.get(t, "node1", "127.0.0.1:10259/metrics") == http.StatusOK && c.get(t, "node1", "127.0.0.1:10249/metrics") == 0
		}},
	{field: "featureGates", from: "kind: ", to: "featureGates: {ComponentStatusz: false}\nkind: ",
		inForce: func(c *cluster, t *testing.T) bool {
			return c.get(t, "node1", "127.0.0.1:10249/statusz") == http.StatusNotFound
		}},
}

// leastConnections finds frontends' virtual servers with that scheduler. (Those of marks, by
// which new connections were led past them meanwhile, stay until these have ended.)
var leastConnections = regexp.MustCompile(`(?m)^TCP .* lc `)

// TestReconfigure changes the configuration file under agents that run, field by
// field and back, in every mode that this kernel has: each change takes effect, and
// none costs a connection.
func TestReconfigure(t *testing.T) {
	c := newCluster(t, "")
	for _, mode := range testModes() {
		t.Run(mode, func(t *testing.T) {
			agents := c.start(t, build(mode, os.Args[0]))
			c.works(t)
			load := c.load(t, true)
			c.flows(t, load)
			for _, r := range reconfigurations {
				if r.modes != nil && !slices.Contains(r.modes, mode) {
					continue
				}
				if r.inForce(c, t) {
					t.Errorf("%s: %s is in force already", r.field, r.to)
				}
				before := c.configuration(mode)
				after := strings.Replace(before, r.from, r.to, 1)
				if after == before {
					t.Fatalf("%s: no %q in the file", r.field, r.from)
				}
				c.rewrite(t, after)
				eventually(t, r.field+" is in force", func() bool { return r.inForce(c, t) })
				happened(t, "%s is changed", r.field)
				c.rewrite(t, strings.Replace(before, r.from, cmp.Or(r.back, r.from), 1))
				eventually(t, r.field+" is as it was", func() bool { return !r.inForce(c, t) })
			}
			c.works(t)
			load.check(t, "reconfiguring", "")
			c.stop(t, agents)
			c.cleanUp(t)
		})
	}
}

// rewrite replaces the file of each node's agent, as editors do.
func (c *cluster) rewrite(t *testing.T, text string) {
	t.Helper()
	for _, node := range c.nodes {
		file := filepath.Join(lab.Dir(c.lab), node+".conf")
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) reaches(t *testing.T, from, address string) bool {
	t.Helper()
	_, _, err := c.places[from].ask("tcp", address)
	return err == nil
}

// runs is what a command says on node1.
func (c *cluster) runs(t *testing.T, command string) string {
	t.Helper()
	stdout, stderr, code := fairway(append([]string{"lab", "exec", "--name", c.lab, "node1", "--"}, strings.Fields(command)...)...)
	if code != 0 {
		t.Fatalf("%s: %s", command, stderr)
	}
	return stdout
}

// localNodePort and nodePort6 are where the Service web is served on node1, beside
// its IPv4 address.
func (c *cluster) localNodePort() string {
	_, port, _ := strings.Cut(c.at("web", "node port", 0), ":")
	return net.JoinHostPort("127.0.0.1", port)
}

func (c *cluster) nodePort6(t *testing.T) string {
	t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(c.at("web", "node port", 0), ":")
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is6() {
			return net.JoinHostPort(a.Address, port)
		}
	}
	t.Fatal("node1 has no IPv6 address")
	return ""
}

// masquerades tells whether endpoints see a node in the place of a pod.
func (c *cluster) masquerades(t *testing.T) bool {
	t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(t.Context(), "asks", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, seen, err := c.places["pod"].ask("tcp", c.at("web", "4", 0))
	if err != nil {
		t.Errorf("ask who asks: %v", err)
	}
	return seen.String() != pod.Status.PodIP
}

// marksBit7 tells whether packets to be masqueraded have bit 7 set instead of 14,
// as far as both families' rules say.
func (c *cluster) marksBit7(t *testing.T) bool {
	t.Helper()
	for _, command := range []string{"iptables-save", "ip6tables-save"} {
		if rules := c.runs(t, command); !strings.Contains(rules, "0x80") || strings.Contains(rules, "0x4000") {
			return false
		}
	}
	return true
}
