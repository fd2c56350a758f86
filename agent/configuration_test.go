package agent

import (
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/fairway-net/fairway/test/fakeapi"
)

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
