package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/testing/fakeapi"
	"github.com/fairway-net/fairway/model"
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
		time.Sleep(10 * time.Millisecond)
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

// TestNarrowCgroupIsSaid: an agent whose mode can't see the node's sockets, most
// likely by a mistake in its DaemonSet, says so in its log.
func TestNarrowCgroupIsSaid(t *testing.T) {
	r := newRig(t)
	r.node(firstAddress, "")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.config.Log = slog.New(slog.NewTextHandler(log, nil))
	r.lacks = []kernel.Unsupported{{Feature: kernel.NodeSockets, Why: "it is in a container"}, {Feature: kernel.Hairpin, Why: "nobody asks"}}
	r.start()
	r.eventually("it is said", func() bool {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), "level=WARN") && strings.Contains(string(text), "it is in a container")
	})
	r.stop()
	text, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "nobody asks") {
		t.Errorf("said without being asked for: %s", text)
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

func TestReload(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, "")
	r.node(firstAddress, "")
	r.config.Profiling = true
	r.start()
	r.eventually("in force", func() bool { return r.serves(firstAddress, 30001) })
	if code, _ := get(metricsAddress, "/debug/pprof/cmdline"); code != 200 {
		t.Errorf("pprof answers %d where it is configured", code)
	}

	next := r.config
	next.Compile.NodePorts, next.Profiling = compile.NodePortAddresses{}, false
	next.Shown = map[string]any{"kubeproxy.config.k8s.io": map[string]string{"mode": "nftables"}}
	r.updates <- Update{Config: next}
	r.eventually("node ports at all addresses", func() bool { return r.serves(secondAddress, 30001) })
	if code, _ := get(metricsAddress, "/debug/pprof/cmdline"); code != 404 {
		t.Errorf("pprof answers %d where it isn't configured", code)
	}
	if _, text := get(metricsAddress, "/configz"); text != `{"kubeproxy.config.k8s.io":{"mode":"nftables"}}` {
		t.Errorf("/configz: %s", text)
	}

	r.updates <- Update{Err: errors.New("mode: none must be one of")}
	r.eventually("the bad file is counted", metric(`fairway_config_reloads_total{result="invalid"} 1`))
	r.eventually("the Node's Events tell", func() bool { return slices.Contains(r.nodeEvents(), reasonNotConfigured) })

	next.Mode = "ipvs"
	r.updates <- Update{Config: next}
	r.eventually("ipvs alone", r.only("ipvs"))
	if _, mode := get(metricsAddress, "/proxyMode"); mode != "ipvs" {
		t.Errorf("/proxyMode: %s", mode)
	}
	history := r.history()
	if complete, gone := slices.Index(history, "apply ipvs"), slices.Index(history, "remove nftables"); complete < 0 || gone < complete {
		t.Errorf("the old plane went before the new one was complete: %v", history)
	}

	r.mu.Lock()
	r.unable["iptables"] = errors.New("no iptables here")
	r.mu.Unlock()
	next.Mode = "iptables"
	r.updates <- Update{Config: next}
	r.eventually("the Node's Events tell that the mode stays", func() bool { return slices.Contains(r.nodeEvents(), reasonModeStays) })
	if !r.only("ipvs")() {
		t.Errorf("planes after a mode that can't be: %v", r.there())
	}
	if n := len(r.api.Seen().Forbidden); n > 0 {
		t.Errorf("%d requests that the role system:node-proxier doesn't allow", n)
	}
}

// TestReloadOfWhatIsFixed: another node name and API need new watches, in the
// same process and without a moment in which nothing is forwarded, the node is
// unwell, or a port is closed.
func TestReloadOfWhatIsFixed(t *testing.T) {
	r := newRig(t)
	r.service("web", 1, `,"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":32101`)
	r.node(firstAddress, "")
	r.config.Compile.NodePorts.Prefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	r.config.Compile.LocalhostNodePorts = true // health check ports answer where node ports do
	r.start()
	r.eventually("in force", func() bool { return r.serves(firstAddress, 30001) })
	r.eventually("well", status("/healthz", 200))
	r.eventually("health check port", func() bool { return opens("127.0.0.1:32101") })
	through := make(chan struct{})
	asking := sync.WaitGroup{}
	ask := func(what string, ok func() bool) {
		asking.Go(func() {
			for {
				if !ok() {
					t.Errorf("%s during the reload", what)
					return
				}
				select {
				case <-through:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	ask("not well", status("/healthz", 200))
	ask("no metrics", func() bool { return opens(metricsAddress) })
	ask("no health check port", func() bool { return opens("127.0.0.1:32101") })
	next := r.config
	next.NodeName, next.API, next.Updates = "there", rest.CopyConfig(r.config.API), nil
	r.config.NodeName = "there"
	r.node(secondAddress, "")
	before := len(r.history())
	r.updates <- Update{Config: next}
	r.eventually("the other Node's address", func() bool { return r.serves(secondAddress, 30001) && !r.serves(firstAddress, 30001) })
	close(through)
	asking.Wait()
	for _, what := range r.history()[before:] {
		if what != "apply nftables" {
			t.Errorf("also: %s", what)
		}
	}
	r.eventually("counters go on", metric(`fairway_config_reloads_total{result="taken"} 1`))
	next.Compile.NodePorts = compile.NodePortAddresses{}
	select {
	case r.updates <- Update{Config: next}:
	case <-time.After(30 * time.Second):
		t.Fatal("the next change finds nobody")
	}
	r.eventually("the next change", func() bool { return r.serves(firstAddress, 30001) && r.serves(secondAddress, 30001) })
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
	for name, want := range documentedMetrics(t) {
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
	for range 20 { // longer than a change may wait
		if got, text := get(healthAddress, "/healthz"); got != 200 {
			t.Fatalf("/healthz %d: %s", got, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.mu.Lock()
	r.result = kernel.Result{}
	r.mu.Unlock()
	r.eventually("nothing left out any more", metric("fairway_left_out 0"))
}

// TestServiceCIDRs: the ranges that the API has are reserved, where the agent may
// read them.
func TestServiceCIDRs(t *testing.T) {
	for minor, want := range map[int][]string{32: {"10.96.0.0/16"}, 33: {"10.96.0.0/16", "10.97.0.0/24", "fd00:97::/112"}} {
		r := newRig(t)
		r.api.Rules = fakeapi.NodeProxierOf(minor)
		r.config.Compile.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
		r.service("web", 1, "")
		r.node(firstAddress, "")
		r.apply(`{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"more"},"spec":{"cidrs":["10.97.0.0/24","fd00:97::/112"]}}`)
		r.start()
		reserved := func(want []string) func() bool {
			return func() bool {
				table, got := r.table("nftables"), []string(nil)
				if table != nil {
					for _, p := range table.Settings.Reserved {
						got = append(got, p.String())
					}
				}
				return slices.Equal(got, want)
			}
		}
		r.eventually(fmt.Sprint("reserved ranges ", want), reserved(want))
		if minor == 33 {
			r.do("delete servicecidrs /more")
			r.eventually("a range that is gone isn't reserved", reserved([]string{"10.96.0.0/16"}))
		}
		r.stop()
	}
}

// TestFirstTableWaitsForServiceCIDRs: or packets to unknown addresses of their ranges
// would leave the node until then.
func TestFirstTableWaitsForServiceCIDRs(t *testing.T) {
	s := newState(compile.Config{}, "here", func() {})
	for _, part := range []string{partServices, partSlices, partNode, partAddresses} {
		s.complete(part)
	}
	if table, _, _ := s.table(); table != nil {
		t.Error("a table before the ranges of cluster IPs are known")
	}
	s.complete(partServiceCIDRs)
	if table, _, _ := s.table(); table == nil {
		t.Error("no table though all is known")
	}
}
