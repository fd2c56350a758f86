//go:build realcluster

package realcluster

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What of Kubernetes' own tests is run unless FAIRWAY_REALCLUSTER_FOCUS says otherwise: all
// of [sig-network] in its Conformance.
const (
	e2eFocus = `\[sig-network\].*\[Conformance\]`
	e2eSkip  = `\[Disruptive\]|\[Feature:`
)

// TestKubernetes runs Kubernetes' own tests in a cluster that Fairway serves, in each mode.
func TestKubernetes(t *testing.T) {
	built := os.Getenv("FAIRWAY_REALCLUSTER_E2E")
	if built == "" {
		t.Fatal("FAIRWAY_REALCLUSTER_E2E names a folder with e2e.test, ginkgo and agnhost: `make check NAME=sig-network` makes it")
	}
	c := newCluster(t, Options{Agnhost: filepath.Join(built, "agnhost")})
	defer hold(t, c)
	modes := strings.Fields(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_MODES"), "nftables iptables ebpf"))
	if slices.Contains(modes, "ebpf") {
		if err := c.Edit("kubeadm", "components: [../ebpf]"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.Apply("kubeadm"), c.RolledOut("kube-system", "daemonset/fairway"), c.served()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		if err := c.SetMode(mode); err != nil {
			t.Fatal(err)
		}
		t.Run(mode, func(t *testing.T) { c.e2e(t, built) })
	}
}

// e2e runs the tests on the administrator's machine, and reports each.
func (c *Cluster) e2e(t *testing.T, built string) {
	dir := t.TempDir()
	if kept := os.Getenv("FAIRWAY_REALCLUSTER_REPORT"); kept != "" {
		dir = kept
	}
	cmd := exec.Command(filepath.Join(built, "ginkgo"), "run", "--procs=4", "--no-color", "--timeout=90m",
		"--focus="+cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_FOCUS"), e2eFocus), "--skip="+e2eSkip,
		filepath.Join(built, "e2e.test"), "--",
		"--kubeconfig="+c.kubeconfig, "--kubectl-path="+filepath.Join(c.options.Programs, "kubectl"), "--provider=skeleton", "--report-dir="+dir)
	cmd.Env = append(os.Environ(), "HOME="+c.dir)
	out, err := os.Create(filepath.Join(dir, "e2e.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err = c.lab.Client().NS.Start(cmd); err == nil {
		err = cmd.Wait()
	}
	report, unread := readReport(filepath.Join(dir, "junit_01.xml"))
	if unread != nil {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("%v, %v\n%s", err, unread, text[max(0, len(text)-4000):])
	}
	t.Log(report)
	if err != nil || len(report.passed) == 0 {
		t.Errorf("Kubernetes' tests: %v", err)
	}
}

// e2eReport is what became of tests.
type e2eReport struct{ passed, failed []string }

func (r e2eReport) String() string {
	return fmt.Sprintf("%d passed:\n%s\n%d failed:\n%s", len(r.passed), strings.Join(r.passed, "\n"), len(r.failed), strings.Join(r.failed, "\n"))
}

func readReport(path string) (r e2eReport, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Status  string `xml:"status,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		return r, fmt.Errorf("read %s: %w", path, err)
	}
	for _, s := range suites.Suites {
		for _, test := range s.Cases {
			switch {
			case !strings.HasPrefix(test.Name, "[It]"):
			case test.Failure != nil:
				r.failed = append(r.failed, test.Name+": "+test.Failure.Message)
			case test.Status == "passed":
				r.passed = append(r.passed, test.Name)
			}
		}
	}
	slices.Sort(r.passed)
	slices.Sort(r.failed)
	return r, nil
}
