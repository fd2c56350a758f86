//go:build realcluster

package realcluster

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Boot()
	os.Exit(m.Run())
}

// newCluster makes a cluster of what `make check NAME=real-cluster` has built.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	kubernetes, built := os.Getenv("FAIRWAY_KUBERNETES"), os.Getenv("FAIRWAY_REALCLUSTER")
	if kubernetes == "" || built == "" {
		t.Fatal("FAIRWAY_KUBERNETES and FAIRWAY_REALCLUSTER name folders with programs: `make check NAME=real-cluster` makes them")
	}
	nodes := 2
	if text := os.Getenv("FAIRWAY_REALCLUSTER_NODES"); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c, err := New("realcluster", Options{
		Version: filepath.Base(kubernetes), Programs: kubernetes, Nodes: nodes, ProxyMode: "nftables", Deploy: "../../deploy",
		Fairway: filepath.Join(built, "fairway"), Probe: filepath.Join(built, "probe"), CoreDNS: filepath.Join(built, "coredns"),
	})
	if c != nil {
		t.Cleanup(func() {
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRealCluster(t *testing.T) {
	c := newCluster(t)
	if err := c.Work(); err != nil {
		t.Fatal(err)
	}
	questions, err := c.Questions()
	if err != nil {
		t.Fatal(err)
	}
	want, err := c.AskAll(questions)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range questions {
		t.Logf("%s: %s", q, want[q.String()])
	}
	hold(t, c)
}

// hold keeps the cluster for as long as FAIRWAY_REALCLUSTER_HOLD says, or until the file
// is removed that it names, for somebody who wants to look around.
func hold(t *testing.T, c *Cluster) {
	t.Helper()
	text := os.Getenv("FAIRWAY_REALCLUSTER_HOLD")
	if text == "" {
		return
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.dir, "held")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("held for %s, or until %s is removed; KUBECONFIG=%s", long, file, c.kubeconfig)
	for _, n := range c.Nodes {
		t.Logf("%s: nsenter --target %d --all", n.Name, n.first.Process.Pid)
	}
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
		if _, err := os.Stat(file); err != nil {
			return
		}
	}
}
