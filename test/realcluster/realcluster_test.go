//go:build realcluster

package realcluster

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Boot()
	os.Exit(m.Run())
}

// newCluster makes a cluster of what `make check NAME=real-cluster` has built.
func newCluster(t *testing.T, o Options) *Cluster {
	t.Helper()
	kubernetes, built := os.Getenv("FAIRWAY_KUBERNETES"), os.Getenv("FAIRWAY_REALCLUSTER")
	if kubernetes == "" || built == "" {
		t.Fatal("FAIRWAY_KUBERNETES and FAIRWAY_REALCLUSTER name folders with programs: `make check NAME=real-cluster` makes them")
	}
	nodes := 3
	if text := os.Getenv("FAIRWAY_REALCLUSTER_NODES"); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	cni := CNI(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_CNI"), string(Bridge)))
	if !slices.Contains(CNIs, cni) {
		t.Fatalf("FAIRWAY_REALCLUSTER_CNI is %q: want one of %v", cni, CNIs)
	}
	o.Version, o.Programs, o.Nodes, o.ProxyMode, o.Deploy, o.CNI = filepath.Base(kubernetes), kubernetes, nodes, "iptables", "../../deploy", cni
	o.Fairway, o.Agent = filepath.Join(built, "fairway"), filepath.Join(built, "fairway-agent")
	o.Probe, o.CoreDNS = filepath.Join(built, "probe"), filepath.Join(built, "coredns")
	// Two clusters may run at once by two names.
	c, err := New(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_NAME"), "realcluster"), o)
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

// TestRealCluster moves a cluster from kube-proxy to Fairway and back, as the guides say
// and as it ships, with everything that happens to a cluster in between. After each step
// clients get the answers that kube-proxy gave.
func TestRealCluster(t *testing.T) {
	w := startWalk(t, Options{})
	defer hold(t, w.c)
	w.there()
	for mode := range strings.FieldsSeq(cmp.Or(os.Getenv("FAIRWAY_REALCLUSTER_MODES"), "iptables nftables ebpf")) {
		w.throughMode(mode)
		w.seen = append(w.seen, Seen{mode, w.got})
	}
	if file := os.Getenv("FAIRWAY_REALCLUSTER_ANSWERS"); file != "" {
		if err := os.WriteFile(file, []byte(answersHead+Table(w.questions, w.seen)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.reboot()
	w.back()
	w.atOnce()
	w.back()
}

// startWalk makes a cluster, and asks all questions while kube-proxy serves it.
func startWalk(t *testing.T, o Options) *walk {
	t.Helper()
	c := newCluster(t, o)
	if err := errors.Join(c.Work(), c.balance()); err != nil {
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
	return &walk{t: t, c: c, questions: questions, want: want, seen: []Seen{{"kube-proxy", want}}}
}

// walk is the way of a cluster through what happens to it.
type walk struct {
	t         *testing.T
	c         *Cluster
	questions []Question
	want      Answers
	mode      string // Fairway's
	got       Answers
	seen      []Seen
}

// answersHead begins the page of the table.
const answersHead = `# What clients and servers see

` + "`FAIRWAY_REALCLUSTER_ANSWERS=FILE make check NAME=real-cluster`" + ` writes this page: what was asked in a cluster of kubeadm's, with kube-proxy
1.36.3 in iptables mode and then with Fairway in each mode, over IPv4 and IPv6. An answer is who answered, and whose address it saw. client-node1 and client-node2 are pods,
client-host is a pod on node2's network, node is a process of node1, outside isn't in the cluster. [real-cluster.md](real-cluster.md) says more.

`

// losses say what a step may cost.
type losses int

const (
	loseNothing losses = iota
	loseKept           // connections to pods that end
	loseNode           // connections to a node that ends, too
)

// loaded does something under load.
func (w *walk) loaded(what string, may losses, do func() error) {
	w.t.Helper()
	report, err := w.c.UnderLoad(what, do)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	w.t.Log(report)
	failed, broken := report.Lost()
	if failed > 0 && may < loseNode || broken > 0 && may < loseKept {
		w.t.Errorf("%s lost connections", what)
	}
}

// step does something under load, and then asks all questions.
func (w *walk) step(what string, may losses, do func() error) {
	w.t.Helper()
	w.loaded(what, may, do)
	got, err := w.c.Settled(w.questions, w.accepted)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	w.got = got
	for _, q := range w.questions {
		if answer := got[q.String()]; !w.accepted(q, answer) {
			w.t.Errorf("%s: %s: %q, by kube-proxy %q", what, q, answer, w.want[q.String()])
		}
	}
}

// accepted says whether an answer is kube-proxy's, or another one that the documents promise.
func (w *walk) accepted(q Question, answer string) bool {
	switch {
	case answer == w.want[q.String()]:
		return true
	case q.Service == "unserved port": // kube-proxy's iptables mode leaves it to time out
		return answer == "refused"
	case q.Service == "one pod (hairpin from itself)" && w.mode == "ebpf": // docs/explanation/ebpf.md
		return answer == q.Client.Name+" sees the client"
	}
	return false
}

// there moves the cluster from kube-proxy to Fairway, node by node.
func (w *walk) there() {
	c := w.c
	w.step("deploy/node-by-node", loseNothing, func() error {
		return errors.Join(c.Apply("node-by-node"), c.RolledOut("kube-system", "daemonset/kube-proxy"))
	})
	w.mode = "iptables" // kube-proxy's own
	for _, n := range c.Nodes {
		w.step("from kube-proxy to Fairway: "+n.Name, loseNothing, func() error { return c.Move(n, "fairway") })
	}
}

// atOnce moves all nodes from kube-proxy to Fairway with one command.
func (w *walk) atOnce() {
	c := w.c
	w.step("from kube-proxy to Fairway: all nodes at once", loseNothing, func() error {
		return errors.Join(c.Apply("kubeadm"), c.RolledOut("kube-system", "daemonset/fairway"), c.served())
	})
}

// throughMode changes to a mode and has there happen what happens to agents and nodes.
func (w *walk) throughMode(mode string) {
	c := w.c
	if mode == "ebpf" {
		w.step("the component deploy/ebpf", loseNothing, func() error {
			if err := c.Edit("node-by-node", "components: [../ebpf]"); err != nil {
				return err
			}
			return errors.Join(c.Apply("node-by-node"), c.RolledOut("kube-system", "daemonset/fairway"))
		})
	}
	if from := w.mode; from != mode {
		w.mode = mode
		w.step("from "+from+" to "+mode+" mode", loseNothing, func() error { return c.SetMode(mode) })
	}
	w.step(mode+": restart of the agents", loseNothing, func() error { return c.Restart("kube-system", "daemonset/fairway") })
	w.step(mode+": killed agents", loseNothing, w.kill)
	w.step(mode+": rollout of the workload", loseKept, func() error { return c.Restart(namespace, "deployment/rolling") })
	for _, name := range []string{"kubelet", "containerd"} {
		w.step(mode+": restart of "+name, loseNothing, func() error {
			return w.onEach(func(n *Node) error {
				err := n.Kill(name)
				time.Sleep(3 * time.Second) // so that connections begin while it is away and comes back
				return err
			})
		})
	}
}

// kill kills the agents of all nodes and waits until the kubelet has started them again.
func (w *walk) kill() error {
	return w.onEach(func(n *Node) error { return n.must("pkill", "-KILL", "-f", "^/usr/local/bin/fairway agent") })
}

// onEach does something on each node, one after the other, and waits until the node's
// proxy is there and the node is ready.
func (w *walk) onEach(do func(n *Node) error) error {
	for _, n := range w.c.Nodes {
		if err := do(n); err != nil {
			return err
		}
		if err := w.c.await("the proxy of "+n.Name+" is there", n.ready); err != nil {
			return err
		}
		if _, err := w.c.Kubectl("", "wait", "--for=condition=Ready", "node", n.Name, "--timeout=120s"); err != nil {
			return err
		}
	}
	return nil
}

// reboot takes the power of a node away.
func (w *walk) reboot() {
	last := w.c.Nodes[len(w.c.Nodes)-1]
	w.step(w.mode+": reboot of "+last.Name, loseNode, func() error {
		if err := last.Reboot(); err != nil {
			return err
		}
		if err := w.c.await("the proxy of "+last.Name+" is there", last.ready); err != nil {
			return err
		}
		if _, err := w.c.Kubectl("", "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s"); err != nil {
			return err
		}
		return w.c.await("the pods have addresses and answer", func() error {
			if _, err := w.c.Kubectl("", "-n", namespace, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s"); err != nil {
				return err
			}
			return errors.Join(w.c.findClients(), w.c.EndpointsAnswer())
		})
	})
}

// back moves the cluster back to kube-proxy, and looks for what Fairway left.
func (w *walk) back() {
	c := w.c
	if w.mode != "iptables" { // one that kube-proxy knows, and that the answers are of
		from := w.mode
		w.mode = "iptables"
		w.step("from "+from+" to iptables mode", loseNothing, func() error { return c.SetMode("iptables") })
	}
	w.step("back to kube-proxy", loseNothing, func() error {
		if err := c.Apply("kubeadm-back"); err != nil {
			return err
		}
		return errors.Join(c.RolledOut("kube-system", "daemonset/kube-proxy"), c.RolledOut("kube-system", "daemonset/fairway-cleanup"))
	})
	if _, err := c.Kubectl("", "delete", "-k", filepath.Join(c.deploy, "cleanup")); err != nil {
		w.t.Error(err)
	}
	for _, n := range c.Nodes {
		left, err := n.Leftovers()
		if err != nil {
			w.t.Error(err)
		}
		if left != "" {
			w.t.Errorf("%s still has of Fairway: %s", n.Name, left)
		}
	}
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
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) { // a person ends it
		if _, err := os.Stat(file); err != nil {
			return
		}
	}
}
