//go:build !agentonly

package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// publishing has the agent of a machine drain first, and read files of its own.
const (
	publishing = " --drain --drain-time 2s --publish-dir /run/publish.d"
	// fakeSystemctl is systemd's, as far as a unit's state goes: few machines that
	// run tests have systemd running.
	fakeSystemctl = `#!/bin/sh
[ "$1 $2 $3" = "is-active -- shop.service" ] || exit 1
state=$(cat /run/shop.state)
echo "$state"
[ "$state" = active ]
`
)

// file writes a file of a machine.
// agentsAnswer: the first machine asks the agents of the others by the API server, and
// nobody else gets an answer of their ports.
func (c *joined) agentsAnswer() {
	c.t.Helper()
	var said string
	eventually(c.t, "the agents of all machines answer", func() bool {
		said = c.hosts["m1"].run("sudo fairway explain svc/kubernetes || true")
		return strings.Contains(said, "kernel       m1 (") && strings.Contains(said, "kernel       m2 (") && strings.Contains(said, "kernel       m3 (")
	})
	if got := c.hosts["m1"].run("fairway flows --node m2 && fairway doctor svc/kubernetes --node m3"); !strings.Contains(got, "agents keep up with the API") {
		c.t.Errorf("doctor about another machine says\n%s", got)
	}
	for _, at := range []string{"10.77.0.12", "[fd00:77::12]"} {
		if got := c.hosts["laptop"].run("curl -gsk https://" + at + ":10261/v1/status || echo refused"); !strings.Contains(got, "refused") || strings.Contains(got, "version") {
			c.t.Errorf("the agent answers anybody: %s", got)
		}
	}
}

func (m *plainMachine) file(name, text string, mode os.FileMode) {
	m.n.t.Helper()
	m.n.must(os.WriteFile(filepath.Join(m.dir, name), []byte(text), mode))
}

// publishUnit publishes a process on m3 for as long as its unit is active.
func (c *joined) publishUnit() {
	c.t.Helper()
	m1, m3 := c.hosts["m1"], c.hosts["m3"]
	m3.file("bin/systemctl", fakeSystemctl, 0o755)
	m3.file("run/shop.state", "active\n", 0o644)
	m1.run("fairway expose shop --port 80 --type ClusterIP")
	if out := m3.run("fairway publish shop --port 8000 --unit shop.service --publish-dir /run/publish.d --wait 5m"); !strings.Contains(out, "ready: ") {
		c.t.Errorf("publish says:\n%s", out)
	}
	says := func(text string) func() bool {
		return func() bool { return strings.Contains(m1.run("fairway status"), text) }
	}
	m3.file("run/shop.state", "failed\n", 0o644)
	eventually(c.t, "the unit's end is seen", says("of default/shop: unit shop.service is failed, says m3"))
	m3.file("run/shop.state", "active\n", 0o644)
	eventually(c.t, "the unit is back", func() bool { return !says("shop.service")() })
}

// endsDrained ends the agent of m3: what it publishes is drained before it goes.
func (c *joined) endsDrained(terminate func()) {
	c.t.Helper()
	selector := discoveryv1.LabelServiceName + "=shop"
	eventually(c.t, "the endpoint of m3 is ready", func() bool {
		list, err := c.client.DiscoveryV1().EndpointSlices("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: selector})
		c.must(err)
		return len(list.Items) == 1 && len(list.Items[0].Endpoints) == 1 && *list.Items[0].Endpoints[0].Conditions.Ready
	})
	timeout := int64(waitTimeout / time.Second)
	w, err := c.client.DiscoveryV1().EndpointSlices("default").Watch(c.t.Context(), metav1.ListOptions{
		LabelSelector: selector, TimeoutSeconds: &timeout,
	})
	c.must(err)
	defer w.Stop()
	terminate()
	drained := false
	for event := range w.ResultChan() {
		s, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok || len(s.Endpoints) == 0 {
			continue
		}
		conditions := s.Endpoints[0].Conditions
		drained = drained || !*conditions.Ready && *conditions.Serving && *conditions.Terminating
		if event.Type == watch.Deleted {
			if !drained {
				c.t.Error("the agent of m3 ended, and its endpoint went without being drained")
			}
			return
		}
	}
	c.t.Error("the agent of m3 ended, and its endpoint stayed")
}

// hooks are two processes that drive the same load balancer; one does the work.
type hooks struct {
	c    *joined
	kill map[string]func()
}

func (c *joined) startHooks() *hooks {
	c.t.Helper()
	h := &hooks{c: c, kill: map[string]func(){}}
	for _, name := range []string{"a", "b"} {
		_, h.kill[name] = c.hosts["m1"].start("fairway hook --all --exec 'cat >>/run/hook." + name + "'")
	}
	return h
}

// working are the hooks that have handed something on.
func (h *hooks) working() (list []string) {
	for name := range h.kill {
		if data, err := os.ReadFile(filepath.Join(h.c.hosts["m1"].dir, "run", "hook."+name)); err == nil && len(data) > 0 {
			list = append(list, name)
		}
	}
	return list
}

// killLeader kills the one that works. That both have worked is right only if the
// Lease has changed hands: the machine was too busy for the first to renew it.
func (h *hooks) killLeader() {
	h.c.t.Helper()
	eventually(h.c.t, "a hook works", func() bool { return len(h.working()) > 0 })
	working := h.working()
	lease, err := h.c.client.CoordinationV1().Leases("kube-system").Get(h.c.t.Context(), "fairway-hook", metav1.GetOptions{})
	h.c.must(err)
	if len(working) != 1 && (lease.Spec.LeaseTransitions == nil || *lease.Spec.LeaseTransitions == 0) {
		h.c.t.Fatalf("hooks %v work at once", working)
	}
	h.kill[working[0]]()
}

// tookOver waits until the other works.
func (h *hooks) tookOver() {
	h.c.t.Helper()
	eventually(h.c.t, "the other hook takes over", func() bool { return len(h.working()) == 2 })
}
