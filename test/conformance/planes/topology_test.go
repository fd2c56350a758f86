package planes

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/test/vm"
)

// newTopology makes a topology for the test.
func newTopology(t *testing.T) *Topology {
	t.Helper()
	s, err := NewTopology()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStage plays without any plane: everybody reaches everybody, and the
// harness tells outcomes apart.
func TestTopology(t *testing.T) {
	s := newTopology(t)
	var script strings.Builder
	for _, from := range hostNames() {
		for _, to := range []string{"node:8080", "node6:8080", "peer:9090", "peer6:9090", "client:8081", "client6:8081"} {
			script.WriteString("probe " + from + " tcp " + to + " -> pass\n")
			script.WriteString("probe " + from + " udp " + to + " -> pass\n")
		}
		for _, to := range []string{"a:8080", "a6:8080", "c:8080", "d6:8080"} {
			script.WriteString("probe " + from + " tcp " + to + " -> pass\n")
			script.WriteString("probe " + from + " udp " + to + " -> pass\n")
		}
	}
	script.WriteString("probe a tcp c:81 -> pass\nprobe a tcp c6:81 -> pass\nprobe a udp c:81 -> pass\n")
	script.WriteString("probe a udp 198.51.100.1:81 -> pass\nprobe node tcp localhost:8080 -> pass\n")
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := playBare(t, s, script.String()); err != nil {
		t.Error(err)
	}
	if err := s.Left(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestStageSCTP does the same for SCTP, in a kernel that has it.
func TestTopologySCTP(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		s := newTopology(t)
		err := playBare(t, s, "probe a sctp b:8080 -> pass\nprobe a sctp c6:8080 -> pass\nprobe a sctp c:81 -> pass\n"+
			"probe client sctp node:9090 -> pass\nprobe a sctp 198.51.100.1:81 -> pass")
		if err != nil {
			t.Error(err)
		}
	}, "sctp")
}

// TestStageFindsFaults: without a plane, what a case expects of one is missed.
func TestTopologyFindsFaults(t *testing.T) {
	s := newTopology(t)
	defer func(was time.Duration) { waitTimeout = was }(waitTimeout)
	waitTimeout = time.Second
	const web = "\n-- web.yaml --\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
		"spec: {clusterIP: 10.96.0.10, ports: [{port: 8080}]}\n"
	for script, complaint := range map[string]string{
		"probe a tcp 10.96.0.10:80 -> pass":                                                           "the case expects \"pass\", but the table says refuse",
		"probe a tcp 10.96.0.10:80 -> refused":                                                        "silent",
		"apply web.yaml\nendpoints default/web 8080 a\nprobe b tcp 10.96.0.10:8080 -> a":              "silent",
		"apply web.yaml\nendpoints default/web 8080 a\nprobe b tcp 10.96.0.10:8080 -> c":              "the table's backends are a:8080",
		"apply web.yaml\nendpoints default/web 8080 a b\nprobe b tcp 10.96.0.10:8080 -> a":            "the table's backends are a:8080 b:8080",
		"apply web.yaml\nendpoints default/web 8080 a\nprobe b tcp 10.96.0.10:8080 -> a b":            "the table's backends are only a:8080",
		"apply web.yaml\nendpoints default/web 8080 a\nprobe b tcp 10.96.0.10:8080 -> a, masqueraded": "source kept",
	} {
		err := playBare(t, s, script+web)
		if err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%s: %v, expected %q", script, err, complaint)
		}
	}
}

// playBare plays a script on a topology where there is no plane.
func playBare(t *testing.T, s *Topology, script string) error {
	t.Helper()
	c, err := ParseCase("bare", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{topo: s, c: c, cluster: NewCluster(), flows: map[string]*flow{}, loads: map[string]*load{}}
	return r.steps()
}

// bareTranslation is the least that forwards a Service, without any care for
// what conntrack calls INVALID: what kube-proxy was once.
const bareTranslation = `
apply web.yaml
endpoints default/web 8080 a
run nft add table ip bare
run nft add chain ip bare in { type nat hook prerouting priority -100 ; }
run nft add chain ip bare own { type nat hook output priority -100 ; }
run nft add chain ip bare out { type nat hook postrouting priority 100 ; }
run nft add rule ip bare in ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.1.2:8080
run nft add rule ip bare own ip daddr 10.96.0.10 tcp dport 80 dnat to 10.244.1.2:8080
run nft add rule ip bare out ip saddr 172.30.0.0/16 ct status dnat masquerade
`

const bareService = "\n-- web.yaml --\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
	"spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}\n"

// TestInvalidEndsCareless: the step shows what planes must prevent.
func TestInvalidEndsCareless(t *testing.T) {
	s := newTopology(t)
	for _, flow := range []string{
		"flow x b tcp 10.96.0.10:80 -> a, source kept",
		"flow x client tcp 10.96.0.10:80 -> a, masqueraded",
		"flow x node tcp 10.96.0.10:80 -> a, masqueraded",
	} {
		err := playBare(t, s, bareTranslation+flow+"\nsend x -> same\ninvalid x\n"+bareService)
		if err == nil || !strings.Contains(err.Error(), string(Reset)) {
			t.Errorf("%s: %v, expected a reset", flow, err)
		}
		if err := playBare(t, s, "run nft delete table ip bare"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoadFindsGaps: one refused connection among many is found.
func TestLoadFindsGaps(t *testing.T) {
	s := newTopology(t)
	const load = "load x client tcp 10.96.0.10:80\n"
	if err := playBare(t, s, bareTranslation+load+"run sleep 0.2\nunload x\n"+bareService); err != nil {
		t.Error(err)
	}
	const gap = "run sleep 0.2\nrun nft insert rule ip bare in tcp dport 80 dnat to 10.244.1.2:81\nrun sleep 0.2\n"
	err := playBare(t, s, strings.Replace(bareTranslation, "run nft add table ip bare", "run nft flush table ip bare", 1)+load+gap+"unload x\n"+bareService)
	if err == nil || !strings.Contains(err.Error(), "expected all to be answered") {
		t.Errorf("got %v", err)
	}
}

// TestNodeCgroup: sockets of the node are made where eBPF programs of its plane
// see them.
func TestNodeCgroup(t *testing.T) {
	s := newTopology(t)
	if s.sockets == nil {
		t.Skip("NOT TESTED: no cgroup v2 is mounted here")
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", s.sockets.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for _, line := range split(string(text)) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok { // version 2
			path = rest
		}
	}
	if path == "" || path == "/" || !strings.HasSuffix(s.cgroup, path) {
		t.Errorf("the maker of sockets is in %q, expected %s", path, s.cgroup)
	}
}

// TestDeadStages: what a killed process left goes with the next topology; what
// others use stays.
func TestDeadTopologies(t *testing.T) {
	const nobody = 1 << 30 // above any process id (PID_MAX_LIMIT is 1 << 22)
	dead, alive := fmt.Sprintf("conformance-%d-1", nobody), topologyName(topologies.Add(1))
	for _, name := range []string{dead, alive} {
		lab, err := topology.New(name, topology.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := lab.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	newTopology(t)
	for name, want := range map[string]bool{dead: false, alive: true} {
		if there, err := topology.Exists(name); err != nil || there != want {
			t.Errorf("topology %s is there: %v, %v; want %v", name, there, err, want)
		}
	}
}
