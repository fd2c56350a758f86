package planes

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/test/vm"
)

// casesInMachine are those that a run of all tests plays in the virtual machine, where everything
// takes ten times as long: what ipvs mode, which isn't extended any more, has code of its own for.
// That a packet goes where the model says, TestFuzzPlanes tries there, too; all cases are left to a
// check of their own (see allInMachine).
var casesInMachine = []string{
	"affinity", "affinity-timeout", "choice", "clusterip", "drift", "external-local", "externalips", "hairpin", "loadbalancer",
	"nodeport", "noendpoints", "orphans", "restart", "rolling", "sctp", "weights",
}

// TestCasesInMachine holds that they are there.
func TestCasesInMachine(t *testing.T) {
	for _, name := range casesInMachine {
		if _, err := os.Stat(strings.Replace(everyCase, "*", name, 1)); err != nil {
			t.Error(err)
		}
	}
}

// cases are the files that a pattern matches, each as it is written and with
// the IP families swapped; in the virtual machine the latter is left to checks of
// their own (see allInMachine).
func cases(t *testing.T, pattern string) []*Case {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("find cases: %d, %v", len(paths), err)
	}
	var all []*Case
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		swapped, err := SwapFamilies(data)
		if err != nil {
			t.Fatalf("case %s: swap families: %v", name, err)
		}
		versions := map[string][]byte{name: data, name + OtherFamilySuffix: swapped}
		if vm.Inside() && (!allInMachine || ofBothFamilies(data)) { // where everything takes ten times as long
			delete(versions, name+OtherFamilySuffix)
		}
		for name, data := range versions {
			c, err := ParseCase(name, data)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Case) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// ofBothFamilies reports whether a case, as it is written, sends packets of both
// IP families.
func ofBothFamilies(data []byte) bool {
	script, _, _ := bytes.Cut(data, []byte("\n-- "))
	four, six := false, false
	for line := range strings.Lines(string(script)) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(line, "#") || !strings.Contains(word, ":") {
				continue
			}
			if strings.HasPrefix(word, "[") || strings.Contains(word, "6:") {
				six = true
			} else {
				four = true
			}
		}
	}
	return four && six
}

const (
	everyCase  = "testdata/cases/*.txtar"
	switchCase = "testdata/switch.txtar"
	siteCase   = "testdata/sites/cases/*.txtar"
)

// TestSpecification holds what the cases expect against model.Decide.
func TestSpecification(t *testing.T) {
	for _, c := range slices.Concat(cases(t, everyCase), cases(t, switchCase), cases(t, siteCase)) {
		t.Run(c.Name, func(t *testing.T) {
			if err := Specify(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// kernelNeeds are the kernel features without which a plane can't be made.
// Planes run in the virtual machine if the kernel at hand lacks them.
var kernelNeeds = map[string][]string{"ipvs": {"ip_vs", "dummy"}}

// TestPlanes plays every case with every plane; those about SCTP are left to
// TestSCTP.
func TestPlanes(t *testing.T) {
	playAll(t, false)
}

// TestLegacy plays every case with the legacy variant of iptables, whichever
// TestPlanes has found.
func TestLegacy(t *testing.T) {
	t.Parallel()
	playKind(t, "iptables", iptables.Legacy, false)
}

// TestSCTP plays the cases about SCTP with every plane.
func TestSCTP(t *testing.T) {
	playAll(t, true, "sctp")
}

func playAll(t *testing.T, sctp bool, features ...string) {
	t.Parallel()
	for _, kind := range dataplane.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			vm.With(t, func(t *testing.T) { playKind(t, kind.Name, "", sctp) }, append(slices.Clone(features), kernelNeeds[kind.Name]...)...)
		})
	}
}

// playKind plays cases side by side, since most of their time they wait for
// what must not come. Those that wait longest are the first: at the end, they would
// leave the virtual machine, which everybody waits for, with nothing to do.
func playKind(t *testing.T, kind string, variant iptables.Variant, sctp bool) {
	th := newTheatre(t, variant)
	all := cases(t, everyCase)
	slices.SortStableFunc(all, func(a, b *Case) int { return cmp.Compare(b.pauses(), a.pauses()) })
	for _, c := range all {
		left := vm.Inside() && !allInMachine && !slices.Contains(casesInMachine, c.Name)
		if c.SCTP() == sctp && !left {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				play(t, th, kind, c)
			})
		}
	}
}

// SwitchEnv, if it is "pairs", has TestSwitch change each plane for each other on a
// topology of its own, instead of one after the other.
const SwitchEnv = "FAIRWAY_SWITCH"

// tours change every plane for every other one, once: those with ipvs in a tour of
// their own, which takes the virtual machine, and is a check of its own (see withIPVS).
// Variants of iptables change, too.
var tours = map[string][]string{
	"tour": {
		"nftables", "ebpf", "nftables", "iptables/nft", "iptables/legacy", "iptables/nft", "nftables", "userspace", "ebpf",
		"iptables/nft", "ebpf", "userspace", "iptables/legacy", "userspace", "nftables",
	},
	"tour-ipvs": {"ipvs", "nftables", "ipvs", "ebpf", "ipvs", "iptables", "ipvs", "userspace", "ipvs"},
}

// TestSwitch changes every plane for every other one:
//
//	go test ./test/conformance/planes -run TestSwitch/tour
//	go test -tags ipvs ./test/conformance/planes -run TestSwitch/tour-ipvs
//	FAIRWAY_SWITCH=pairs go test ./test/conformance/planes -run TestSwitch/iptables-to-ebpf
func TestSwitch(t *testing.T) {
	t.Parallel()
	all := maps.Clone(tours)
	if !withIPVS {
		delete(all, "tour-ipvs")
	}
	if os.Getenv(SwitchEnv) == "pairs" {
		all = map[string][]string{}
		for _, from := range dataplane.Kinds() {
			for _, to := range dataplane.Kinds() {
				if from.Name != to.Name {
					all[from.Name+"-to-"+to.Name] = []string{from.Name, to.Name}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var needs []string
			for _, kind := range all[name] {
				needs = append(needs, kernelNeeds[kind]...)
			}
			slices.Sort(needs)
			needs = slices.Compact(needs)
			vm.With(t, func(t *testing.T) { tour(t, newTheatre(t, ""), all[name]) }, needs...)
		})
	}
}

// TestUpgrade kills each plane's process with connections under way, and starts it
// again, as another version:
//
//	git worktree add /tmp/earlier v0.2 && (cd /tmp/earlier && go test -c -o /tmp/earlier.test ./test/conformance/planes)
//	FAIRWAY_CONFORMANCE_OLDER=/tmp/earlier.test go test ./test/conformance/planes -run TestUpgrade
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, kind := range dataplane.Kinds() {
		if len(kernelNeeds[kind.Name]) > 0 && !withIPVS {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			again := []string{kind.Name + "@older", kind.Name, kind.Name}
			vm.With(t, func(t *testing.T) { tour(t, newTheatre(t, ""), again) }, kernelNeeds[kind.Name]...)
		})
	}
}

// TestTours holds that they leave out no change.
func TestTours(t *testing.T) {
	made := map[string]bool{}
	for _, kinds := range tours {
		for i, to := range kinds[1:] {
			made[planeOf(kinds[i])+"-to-"+planeOf(to)] = true
		}
	}
	for _, from := range dataplane.Kinds() {
		for _, to := range dataplane.Kinds() {
			if change := from.Name + "-to-" + to.Name; from.Name != to.Name && !made[change] {
				t.Errorf("no tour has %s", change)
			}
		}
	}
}

// theatre has the topologies of cases that play side by side. A topology on which a
// case has left something is not used again.
type theatre struct {
	variant iptables.Variant // of the planes' commands; the one found if it is ""
	site    *Site            // that the topologies are; nil for the plain one
	mu      sync.Mutex
	free    []*Topology
}

func newTheatre(t *testing.T, variant iptables.Variant) *theatre {
	t.Helper()
	th := &theatre{variant: variant}
	t.Cleanup(func() {
		for _, s := range th.free {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return th
}

// topo lends a topology to a test.
func (th *theatre) topo(t *testing.T) *Topology {
	t.Helper()
	th.mu.Lock()
	defer th.mu.Unlock()
	var s *Topology
	if n := len(th.free); n > 0 {
		s, th.free = th.free[n-1], th.free[:n-1]
	} else {
		var err error
		if s, err = NewTopology(); err != nil {
			t.Fatal(err)
		}
		s.Variant = th.variant
		if th.site != nil {
			if err := s.become(th.site); err != nil {
				t.Fatal(errors.Join(err, s.Close()))
			}
		}
	}
	t.Cleanup(func() { th.takeBack(t, s) })
	return s
}

func (th *theatre) takeBack(t *testing.T, s *Topology) {
	if t.Failed() || th.site != nil && len(th.site.during) > 0 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.free = append(th.free, s)
}

func play(t *testing.T, th *theatre, kind string, c *Case) {
	t.Helper()
	th.play(t, func(topo *Topology, stateDir string) (*Run, error) { return Play(c, topo, kind, "", stateDir) })
}

func tour(t *testing.T, th *theatre, kinds []string) {
	t.Helper()
	c := cases(t, switchCase)[0]
	th.play(t, func(topo *Topology, stateDir string) (*Run, error) {
		return Tour(c, topo, stateDir, func(change string) { t.Log(change) }, kinds...)
	})
}

// shortDir is a directory for the test, whose name isn't the test's: Unix sockets' paths
// have 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "case")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (th *theatre) play(t *testing.T, plays func(topo *Topology, stateDir string) (*Run, error)) {
	t.Helper()
	topo := th.topo(t)
	if err := topo.Begin(); err != nil {
		t.Fatal(err)
	}
	stateDir := shortDir(t)
	run, err := plays(topo, stateDir)
	var missing *MissingError
	if errors.As(err, &missing) {
		t.Fatal(err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, run.Diagnosis())
	}
	for _, e := range run.Exceptions {
		t.Log("EXCEPTION: " + e)
	}
	if err := run.Finish(); err != nil {
		t.Error(err)
	}
	if err := topo.Left(stateDir); err != nil {
		t.Error(err)
	}
}
