package speaker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bfd"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/test/wait"
)

// store is an API that keeps the status of objects, by resource and name.
type store struct {
	mu      sync.Mutex
	objects map[string]map[string]any
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/metallb-system/")
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body) // there may be none
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	name := strings.TrimSuffix(path, "/status")
	switch {
	case r.Method == http.MethodPost:
		meta, _ := body["metadata"].(map[string]any)
		name = fmt.Sprint(path, "/", meta["name"])
		if s.objects[name] != nil {
			fail(http.StatusConflict, "AlreadyExists")
			return
		}
		s.objects[name] = map[string]any{}
	case s.objects[name] == nil && r.Method != http.MethodGet:
		fail(http.StatusNotFound, "NotFound")
		return
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
	case r.Method == http.MethodPatch:
		s.objects[name], _ = body["status"].(map[string]any)
	}
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success","items":[]}`)
}

func (s *store) has(what func(name string, status map[string]any) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, status := range s.objects {
		if what(name, status) {
			n++
		}
	}
	return n
}

func speakingTo(t *testing.T, s *store) *Speaker {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	n, err := New(Config{NodeName: "n1", Log: slog.New(slog.DiscardHandler), API: &rest.Config{Host: server.URL, QPS: -1}, Events: &noted{}})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStatusObjects: each Service that the node announces has an object of each protocol, which
// says where, follows what changes, and goes with it.
func TestStatusObjects(t *testing.T) {
	s := &store{objects: map[string]map[string]any{}}
	n := speakingTo(t, s)
	now := time.Now()
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	link := func(interfaces ...string) (list []announce.Address) {
		for _, i := range interfaces {
			list = append(list, announce.Address{Address: four, Services: []string{"d/web"}, Protocol: announce.Layer2, Interface: i, Since: now})
		}
		return list
	}
	routers := func(peers ...string) []announce.Address {
		return []announce.Address{
			{Address: four, Services: []string{"d/web"}, Protocol: announce.BGP, Peers: peers, Since: now},
			{Address: six, Services: []string{"d/web", "d/db"}, Protocol: announce.BGP, Peers: peers, Since: now},
		}
	}
	kinds := []*statusKind{
		{n: n, resource: "servicel2statuses", prefix: "l2-", protocol: announce.Layer2},
		{n: n, resource: "servicebgpstatuses", prefix: "bgp-", protocol: announce.BGP},
	}
	for _, step := range []struct {
		name      string
		addresses []announce.Address
		want      []string
	}{
		{"nothing", nil, nil},
		{"by layer 2", link("eth0"), []string{"servicel2statuses web [map[name:eth0]]"}},
		{"another interface", link("eth1", "eth0"), []string{"servicel2statuses web [map[name:eth0] map[name:eth1]]"}},
		{"and by BGP, of two Services", append(link("eth0"), routers("tor")...), []string{
			"servicebgpstatuses db [tor]", "servicebgpstatuses web [tor]", "servicel2statuses web [map[name:eth0]]",
		}},
		{"another router", routers("tor", "spine"), []string{"servicebgpstatuses db [spine tor]", "servicebgpstatuses web [spine tor]"}},
		{"another node has it", []announce.Address{{Address: four, Services: []string{"d/web"}, Protocol: announce.Layer2, Interface: "eth0"}}, nil},
	} {
		for _, k := range kinds {
			k.write(t.Context(), announce.Report{Addresses: step.addresses}, true)
		}
		var got []string
		s.has(func(name string, status map[string]any) bool {
			resource, _, _ := strings.Cut(name, "/")
			places := status["peers"]
			if places == nil {
				places = status["interfaces"]
			}
			got = append(got, fmt.Sprint(resource, " ", status["serviceName"], " ", places))
			return true
		})
		if slices.Sort(got); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}

// TestStateHeals: the ConfigurationState of a node is there again after somebody deleted it,
// valid or not.
func TestStateHeals(t *testing.T) {
	for _, fault := range []string{"", "BGPPeer tor: no"} {
		s := &store{objects: map[string]map[string]any{}}
		n := speakingTo(t, s)
		n.stateAgain = 50 * time.Millisecond
		want := "Valid"
		if fault != "" {
			n.faults, want = []string{fault}, "Invalid"
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); n.keepReported(ctx) }()
		for range 2 {
			wait.Until(t, 20*time.Second, fmt.Sprintf("%q is reported", fault), func() bool {
				return s.has(func(name string, status map[string]any) bool {
					return name == "configurationstates/speaker-n1" && status["result"] == want && (fault == "" || status["errorSummary"] == fault)
				}) > 0
			})
			s.mu.Lock()
			clear(s.objects)
			s.mu.Unlock()
		}
		cancel()
		<-done
	}
}

// withSessions are routers whose sessions are as given.
type withSessions struct {
	notebook
	list []bgp.Status
}

func (w *withSessions) Status() []bgp.Status { return w.list }

// TestMetrics: sessions are shown under the names, and with the labels, that MetalLB's
// dashboards ask for, one for each router.
func TestMetrics(t *testing.T) {
	n := announcingTo(t, &notebook{})
	router := netip.MustParseAddr("198.51.100.1")
	n.routers = &withSessions{list: []bgp.Status{
		{Address: router, State: bgp.Established, Prefixes: make([]netip.Prefix, 3), Counts: bgp.Counts{UpdatesSent: 7}},
		{Address: router}, // of another BGPPeer
		{Address: router, Peer: announce.Peer{VRF: "red"}},
		{Peer: announce.Peer{Interface: "eth1"}},
	}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(n.Collector(), waysOf{{Session: bfd.Session{Address: router}, State: bfd.Up, Counts: bfd.Counts{Received: 5, Sent: 6, Ups: 2, Downs: 1}}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got = append(got, fmt.Sprint(f.GetName(), labels, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	for _, want := range []string{
		"metallb_bgp_session_up[peer=198.51.100.1 vrf=] 1", "metallb_bgp_session_up[peer=198.51.100.1 vrf=red] 0", "metallb_bgp_session_up[peer=eth1 vrf=] 0",
		"metallb_bgp_announced_prefixes_total[peer=198.51.100.1 vrf=] 3", "metallb_bgp_updates_total[peer=198.51.100.1 vrf=] 7",
		"metallb_bgp_opens_sent[peer=eth1 vrf=] 0", "metallb_bgp_notifications_sent[peer=eth1 vrf=] 0", "metallb_bgp_keepalives_received[peer=eth1 vrf=] 0",
		"metallb_bfd_session_up[peer=198.51.100.1 vrf=] 1", "metallb_bfd_control_packet_input[peer=198.51.100.1 vrf=] 5", "metallb_bfd_control_packet_output[peer=198.51.100.1 vrf=] 6",
		"metallb_bfd_session_up_events[peer=198.51.100.1 vrf=] 2", "metallb_bfd_session_down_events[peer=198.51.100.1 vrf=] 1",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// waysOf are BFD sessions to be shown.
type waysOf []bfd.Status

func (waysOf) Describe(chan<- *prometheus.Desc)       {}
func (w waysOf) Collect(out chan<- prometheus.Metric) { collectWays(out, w) }
