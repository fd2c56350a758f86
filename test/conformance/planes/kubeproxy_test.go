//go:build kubernetes

package planes

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// KubernetesEnv is a directory of Kubernetes' own programs, of which this needs
// kube-proxy (see hack/kubernetes/build).
const KubernetesEnv = "FAIRWAY_KUBERNETES"

// differencesFile lists what kube-proxy is known to do otherwise than the cases
// say, and why.
const differencesFile = "testdata/kube-proxy.txt"

// TestKubeProxy plays the cases with the real kube-proxy: it finds where it and
// Fairway differ in meaning. A difference that testdata/kube-proxy.txt doesn't
// explain is an error, and so is one explained that isn't there.
func TestKubeProxy(t *testing.T) {
	binaries := os.Getenv(KubernetesEnv)
	if binaries == "" {
		t.Fatalf("%s names no directory with a kube-proxy: `make check NAME=kubernetes` has one built", KubernetesEnv)
	}
	defer func(was time.Duration) { waitTimeout = was }(waitTimeout)
	waitTimeout = 4 * time.Second // for what doesn't come
	release := kubeProxyRelease(t, filepath.Join(binaries, "kube-proxy"))
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			known := readDifferences(t, mode, release)
			for _, c := range cases(t, everyCase) {
				if !c.SCTP() && !c.pair() && !strings.HasSuffix(c.Name, OtherFamilySuffix) {
					t.Run(c.Name, func(t *testing.T) {
						playKubeProxy(t, filepath.Join(binaries, "kube-proxy"), mode, c, known)
					})
				}
			}
		})
	}
}

// pair tells whether a case takes two nodes of Fairway: what it shows is a promise
// of Fairway's alone (direct server return).
func (c *Case) pair() bool {
	return slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Verb == "pair" })
}

// playKubeProxy plays one case and compares the steps that failed with those
// that are known to.
func playKubeProxy(t *testing.T, program, mode string, c *Case, known map[string]string) {
	topo := newTopology(t)
	k := startKubeProxy(t, topo, program, mode)
	r := &Run{topo: topo, kind: "kube-proxy", foreign: true, c: c, cluster: NewCluster(), flows: map[string]*flow{}, loads: map[string]*load{}}
	k.follow(r.cluster)
	if err := r.program(); err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for _, s := range c.Steps {
		if r.skips(s) || !k.understands(s) {
			continue
		}
		err := k.step(r, s)
		if err == nil {
			continue
		}
		key := c.Name + ": " + s.Text
		if met[key] = true; known[key] == "" {
			t.Errorf("DIFFERENCE: %s.txtar:%d: %s: %v", c.Name, s.Line, s.Text, err)
			continue
		}
		t.Logf("KNOWN DIFFERENCE: %s.txtar:%d: %s: %v", c.Name, s.Line, s.Text, err)
	}
	for key, how := range known {
		if strings.HasPrefix(key, c.Name+": ") && how == always && !met[key] {
			t.Errorf("NO DIFFERENCE: %s: %s says otherwise", key, differencesFile)
		}
	}
	if err := r.endFlows(); err != nil && !t.Failed() {
		t.Log(err)
	}
}

// endFlows closes what steps that failed have left open.
func (r *Run) endFlows() error {
	var errs []error
	for _, f := range r.flows {
		if f.conn != nil {
			errs = append(errs, f.conn.Close())
		}
	}
	for name := range r.loads {
		errs = append(errs, r.unload(name))
	}
	return errors.Join(errs...)
}

// understands tells whether a step means anything to a proxy that isn't a plane
// of Fairway's.
func (k *kubeProxy) understands(s Step) bool {
	return !slices.Contains([]string{"verify", "resync", "repaired", "switch"}, s.Verb)
}

// step does a step, and tells kube-proxy what has changed. What packets are
// expected to meet is tried again: how long kube-proxy takes isn't the point.
func (k *kubeProxy) step(r *Run, s Step) error {
	switch s.Verb {
	case "kill":
		return k.stop()
	case "start":
		return k.start()
	case "restart":
		return errors.Join(k.stop(), k.start())
	case "config":
		k.configure(s.Args)
		if err := r.step(s); err != nil {
			return err
		}
		return errors.Join(k.stop(), k.start())
	}
	var err error
	for range 3 {
		if err = r.step(s); err == nil || s.Expect == nil || s.Verb == "flow" {
			break
		}
		time.Sleep(500 * time.Millisecond) // kube-proxy syncs once a second
	}
	if err != nil || s.Expect != nil {
		return err
	}
	return k.push(r.cluster)
}

// How a known difference shows.
const (
	always    = "always"
	sometimes = "sometimes"
)

// kubeProxyRelease asks the program for its version.
func kubeProxyRelease(t *testing.T, program string) *version.Version {
	t.Helper()
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatalf("ask kube-proxy for its version: %v", err)
	}
	release, err := version.ParseGeneric(strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes "))
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// readDifferences reads the steps that are known to differ in this release, and how:
// lines of "MODES CASE: STEP" after comments that explain them, where MODES is iptables,
// nftables or both, separated by a comma, after a question mark if it is chance, and
// before the release that ended it, as in <1.37.
func readDifferences(t *testing.T, mode string, release *version.Version) map[string]string {
	t.Helper()
	f, err := os.Open(differencesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	known := map[string]string{}
	lines := bufio.NewScanner(f)
	explained := false
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			explained = text != ""
			continue
		}
		modes, key, ok := strings.Cut(text, " ")
		if !ok || !explained {
			t.Fatal(fmt.Errorf("%s:%d: must be MODES CASE: STEP, after a comment that says why", differencesFile, n))
		}
		how := always
		if rest, chance := strings.CutPrefix(modes, "?"); chance {
			modes, how = rest, sometimes
		}
		modes, end, ended := strings.Cut(modes, "<")
		if ended && release.AtLeast(version.MustParseGeneric(end)) {
			continue
		}
		if slices.Contains(strings.Split(modes, ","), mode) {
			known[key] = how
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return known
}
