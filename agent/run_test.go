package agent

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/documented"
)

func TestNodeComesGoesAndComesAgain(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.start()
	r.eventually("forwarding without a Node", func() bool { return r.serves("10.96.0.1", 80) })
	r.eventually("well without a Node", status("/healthz", 200))
	r.node(firstAddress, "")
	r.eventually("node port at the Node's address", func() bool { return r.serves(firstAddress, 30001) })
	r.node(secondAddress, "")
	r.eventually("node port at the Node's next address", func() bool { return r.serves(secondAddress, 30001) && !r.serves(firstAddress, 30001) })

	r.do("delete nodes /here")
	r.eventually("not for load balancers without the Node", status("/healthz", 503))
	if got, _ := get(healthAddress, "/livez"); got != 200 {
		t.Errorf("/livez %d while the Node is gone", got)
	}
	if !r.serves("10.96.0.1", 80) || !r.serves(secondAddress, 30001) {
		t.Error("forwarding ended with the Node")
	}
	r.node(firstAddress, "")
	r.eventually("for load balancers with the Node made again", status("/healthz", 200))
	r.eventually("node port at the new Node's address", func() bool { return r.serves(firstAddress, 30001) })
	r.node(firstAddress, `},"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]`)
	r.eventually("not for load balancers when about to go", status("/healthz", 503))
	if got, _ := get(healthAddress, "/livez"); got != 200 {
		t.Errorf("/livez %d while the Node is about to go", got)
	}
}

// TestAPIAway: what is in force stays, however long, and what changed meanwhile
// is caught up with.
func TestAPIAway(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.service("old", 2, "")
	r.start()
	r.eventually("in force", func() bool { return r.serves("10.96.0.1", 80) && r.serves("10.96.0.2", 80) })
	r.eventually("well", status("/healthz", 200)) // which comes after the kernel has it
	r.do("away on")
	for _, how := range []string{"end", "expire"} { // watches end, and can't be continued
		r.do("%s", how)
	}
	if err := errors.Join(r.api.Delete("services", "default", "old"), r.api.Delete("endpointslices", "default", "old-1")); err != nil {
		t.Fatal(err)
	}
	r.service("new", 3, "")
	for range 20 {
		if !r.serves("10.96.0.1", 80) || !r.serves("10.96.0.2", 80) {
			t.Fatal("forwarding ended with the API")
		}
		if got, _ := get(healthAddress, "/healthz"); got != 200 {
			t.Fatalf("/healthz %d without the API", got)
		}
		time.Sleep(10 * time.Millisecond) // the API is away for longer than it may be
	}
	r.slowly()
	r.eventually("caught up", func() bool {
		if !r.serves("10.96.0.1", 80) {
			t.Fatal("forwarding ended when the API came back")
		}
		return r.serves("10.96.0.3", 80) && !r.serves("10.96.0.2", 80)
	})
}

// slowly has the API come back, with lists that take their time.
func (r *rig) slowly() {
	r.t.Helper()
	r.do("page 1")
	r.do("slow 100")
	r.do("away off")
}

// TestRestart: what an agent that was killed left in the kernel stays as it is
// until the next one knows everything; then what is stale goes.
func TestRestart(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.service("old", 2, "")
	r.start()
	r.eventually("in force", func() bool { return r.serves("10.96.0.1", 80) && r.serves("10.96.0.2", 80) })
	r.stop()
	left := r.table("nftables")
	if err := errors.Join(r.api.Delete("services", "default", "old"), r.api.Delete("endpointslices", "default", "old-1")); err != nil {
		t.Fatal(err)
	}
	r.do("away on")
	r.start()
	r.eventually("up, not yet well", status("/livez", 503))
	if r.table("nftables") != left {
		t.Error("the kernel was changed before anything was known")
	}
	before := len(r.history())
	r.slowly()
	r.eventually("stale Service gone", func() bool {
		if !r.serves("10.96.0.1", 80) {
			t.Fatal("what is in force was taken from the kernel before everything was known")
		}
		return !r.serves("10.96.0.2", 80)
	})
	if done := r.history()[before:]; len(done) == 0 || done[0] != "apply nftables" {
		t.Errorf("did %v", done)
	}
	if slices.Contains(r.history(), "remove nftables") {
		t.Errorf("everything was removed in between: %v", r.history())
	}
}

// TestOtherProxyEnds: while another proxy runs beside the agent, it puts back what
// the agent has removed of it. When it has ended, that goes for good.
func TestOtherProxyEnds(t *testing.T) {
	r := newRig(t, "ipvs")
	r.config.RetryBind = true
	other, err := net.Listen("tcp", healthAddress)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() }) // if it hasn't been
	r.service("web", 1, "")
	r.node(firstAddress, "")
	r.start()
	r.eventually("nftables alone", r.only("nftables"))
	r.mu.Lock()
	r.holds["ipvs"] = model.NewTable()
	r.mu.Unlock()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.eventually("nftables alone again", r.only("nftables"))
	if code, _ := get(healthAddress, "/healthz"); code != 200 {
		t.Errorf("/healthz answers %d", code)
	}
}

func TestMetricsAreKubeProxys(t *testing.T) {
	r := newRig(t)
	r.node(firstAddress, "")
	r.service("web", 1, `,"internalTrafficPolicy":"Local","externalTrafficPolicy":"Local"`)
	r.config.Mode = "iptables"
	r.start()
	r.eventually("in force", func() bool { return r.table("iptables") != nil })
	r.eventually("well", status("/healthz", 200))
	r.eventually("alive", status("/livez", 200))
	r.slice("web", 2, time.Now())
	r.eventually("a timed change", metric(`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 1`))
	for _, line := range []string{
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"} 1`,
		`kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"} 1`,
		`kubeproxy_sync_proxy_rules_endpoint_changes_total 2`, `kubeproxy_sync_proxy_rules_endpoint_changes_pending 0`,
		`kubeproxy_sync_proxy_rules_service_changes_total 1`, `kubeproxy_proxy_livez_total{code="200"} 1`,
	} {
		r.eventually(line, metric(line))
	}
	// A slice that changes nothing here is timed and isn't pending either.
	r.slice("web", 2, time.Now())
	r.eventually("a change without a sync", metric(`kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2`))
	r.eventually("nothing pending", metric(`kubeproxy_sync_proxy_rules_endpoint_changes_pending 0`))

	r.mu.Lock()
	r.applied["iptables"] = []error{errInjected}
	r.mu.Unlock()
	r.slice("web", 3, time.Now())
	r.eventually("a failure of changes alone", metric(`kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv4"} 1`))

	_, text := get(metricsAddress, "/metrics")
	for name, want := range documented.Metrics(t, "..") {
		of := text
		if strings.HasPrefix(name, "kubernetes_health") {
			_, of = get(metricsAddress, "/metrics/slis")
		}
		// Those that only some planes have are looked for by their registration.
		if found := strings.Contains(of, "# TYPE "+name+" "); found != want && !strings.Contains(name, "_iptables_") {
			t.Errorf("%s: shown %t, documented %t", name, found, want)
		}
	}
	if strings.Contains(text, "etcd_") || strings.Contains(text, "apiserver_") {
		t.Error("the API server's metrics are among the agent's")
	}
}

// opens reports whether a connection to an address is accepted.
func opens(address string) bool {
	conn, err := net.Dial("tcp", address)
	return err == nil && conn.Close() == nil
}

// TestLeftOutIsNotFailure: what a plane can't put in force, while it does the rest,
// makes the node neither unhealthy nor deaf to changes. It is told once.
func TestLeftOutIsNotFailure(t *testing.T) {
	r := newRig(t)
	r.config.VerifyPeriod = 100 * time.Millisecond // so that a node is unhealthy soon
	r.service("web", 1, "")
	r.node(firstAddress, "")
	taken := model.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Proto: model.TCP}
	r.result.LeftOut = []kernel.LeftOut{
		{Frontend: taken, Why: errors.New("address already in use")},
		{Why: &kernel.FullError{What: "the eBPF map conns", LeftOut: 7}},
	}
	r.start()
	r.eventually("well", status("/healthz", 200))
	r.service("next", 2, "")
	r.eventually("the next Service in force", func() bool { return r.serves("10.96.0.2", 80) })
	r.eventually("what is left out counted", metric("fairway_left_out 2"))
	r.eventually("Events written", func() bool {
		text := r.do("events")
		return strings.Count(text, `"reason":"LeftOut"`) == 1 && strings.Count(text, `"reason":"KernelObjectFull"`) == 1 && strings.Contains(text, "address already in use")
	})
	before := len(r.history())
	r.eventually("compared five times, for longer than a change may wait", func() bool {
		if got, text := get(healthAddress, "/healthz"); got != 200 {
			t.Fatalf("/healthz %d: %s", got, text)
		}
		return len(r.history()) >= before+5
	})
	r.mu.Lock()
	r.result = kernel.Result{}
	r.mu.Unlock()
	r.eventually("nothing left out any more", metric("fairway_left_out 0"))
}
