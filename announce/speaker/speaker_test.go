package speaker

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/announce"
	"github.com/fairway-net/fairway/announce/bgp"
	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/apis/metallb/v1beta2"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// notebook are routers that notes what it is told.
type notebook struct {
	peers  []string
	routes []string // of the peer "tor"
	told   bool
}

func (n *notebook) Peers(peers []announce.Peer) {
	n.peers = nil
	for _, p := range peers {
		n.peers = append(n.peers, p.Name)
	}
}

func (n *notebook) Routes(routes map[string]map[netip.Prefix]announce.Route) bool {
	before := len(n.routes)
	n.routes, n.told = nil, true
	for p := range routes["tor"] {
		n.routes = append(n.routes, p.String())
	}
	slices.Sort(n.routes)
	return len(n.routes) < before
}

func (n *notebook) Status() []bgp.Status { return nil }

// noted are the Events that were asked for.
type noted struct{ texts []string }

func (e *noted) ReportNode(reason, message string) {
	e.texts = append(e.texts, " "+reason+": "+message)
}

func (e *noted) ReportService(service types.NamespacedName, reason, message string) {
	e.texts = append(e.texts, service.Name+" "+reason+": "+message)
}

func (e *noted) ReportNormal(service types.NamespacedName, reason, message string) {
	e.ReportService(service, reason, message)
}

// announcingTo is a speaker that announces to a notebook, its configuration
// complete.
func announcingTo(t *testing.T, book *notebook) *Speaker {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	n, err := New(Config{NodeName: "n1", Log: log, API: &rest.Config{Host: "http://127.0.0.1:1"}, Events: &noted{}})
	if err != nil {
		t.Fatal(err)
	}
	n.routers = book
	n.objects.Pools["pool"] = &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"192.0.2.0/24", "2001:db8::/64"}}}
	n.objects.BGPAdvertisements["ad"] = &v1beta1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: "ad"}}
	n.objects.BGPPeers["tor"] = &v1beta2.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "tor"},
		Spec: v1beta2.BGPPeerSpec{MyASN: 1, ASN: 2, Address: "198.51.100.1", DualStackAddressFamily: true}}
	return n
}

// balanced is a table with a load balancer's addresses and so many endpoints.
func balanced(endpoints int, addresses ...string) *model.Table {
	e := model.NewTable().Edit()
	id := model.PoolID{Name: "d/web:http", Proto: model.TCP}
	pool := &model.Pool{ID: id}
	for i := range endpoints {
		pool.Backends = append(pool.Backends, model.Backend{Addr: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1)), Port: 80, Weight: 1})
	}
	e.SetPool(pool)
	for _, a := range addresses {
		f := &model.Frontend{Key: model.Key{Addr: netip.MustParseAddr(a), Port: 80, Proto: model.TCP}, Name: "d/web:http", FrontendType: model.LoadBalancerIP}
		for origin := range f.Routes {
			f.Routes[origin] = model.Route{Pool: id, Masquerade: true}
		}
		e.SetFrontend(f)
	}
	return e.Table()
}

// Routers hear of an address after the data plane has it, and of its end before.
func TestAnnounceOrder(t *testing.T) {
	book := &notebook{}
	n := announcingTo(t, book)
	both, one := balanced(1, "192.0.2.1", "2001:db8::1"), balanced(1, "192.0.2.1")
	step := func(what string, do func(), want ...string) {
		t.Helper()
		do()
		if !slices.Equal(book.routes, want) {
			t.Errorf("%s: routers are told %q, want %q", what, book.routes, want)
		}
	}
	step("before anything is in force", func() { n.Intend(both) })
	if book.told {
		t.Error("routers were told that there is nothing, before that was known")
	}
	step("in force", func() { n.Applied(both, nil) }, "192.0.2.1/32", "2001:db8::1/128")
	step("about to go", func() { n.Intend(one) }, "192.0.2.1/32")
	step("gone", func() { n.Applied(one, nil) }, "192.0.2.1/32")
	step("endpoints about to go", func() { n.Intend(balanced(0, "192.0.2.1")) })
	step("endpoints came back meanwhile", func() { n.Intend(one) }, "192.0.2.1/32")
	step("left out by the data plane", func() {
		n.Applied(one, []kernel.LeftOut{{Frontend: model.Key{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Proto: model.TCP}}})
	})
	step("in force after all", func() { n.Applied(one, nil) }, "192.0.2.1/32")
	step("drained", func() {
		n.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelNodeExcludeBalancers: ""}}}, true)
		n.decide()
	})
	if !slices.Equal(book.peers, []string{"tor"}) {
		t.Errorf("a drained node holds sessions with %q", book.peers)
	}
	step("back", func() { n.SetNode(&corev1.Node{}, true); n.decide() }, "192.0.2.1/32")
	step("beside a MetalLB speaker", func() { n.setSpeaker(types.NamespacedName{Name: "speaker"}, true); n.decide() })
	if len(book.peers) > 0 {
		t.Errorf("sessions with %q beside a MetalLB speaker", book.peers)
	}
}

// What is withdrawn from routers is in force for a moment yet. Other changes, which come
// meanwhile, are so at once.
func TestWithdrawnIsHeld(t *testing.T) {
	n := announcingTo(t, &notebook{})
	again := make(chan struct{}, 9)
	n.again = func() { again <- struct{}{} }
	const one, two, three = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	first := balanced(1, one, two)
	has := func(table *model.Table, a string) bool {
		f := table.Frontend(model.Key{Addr: netip.MustParseAddr(a), Port: 80, Proto: model.TCP})
		return f != nil && len(table.Pool(f.Routes[model.FromOutside].Pool).Backends) > 0
	}
	step := func(what string, next *model.Table, want ...string) {
		t.Helper()
		began := time.Now()
		now := n.Intend(next)
		if took := time.Since(began); took > withdrawPause {
			t.Errorf("%s: the next table was held up for %s", what, took)
		}
		var got []string
		for _, a := range []string{one, two, three} {
			if has(now, a) {
				got = append(got, a)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: in force are %v, want %v", what, got, want)
		}
		if err := now.Validate(); err != nil {
			t.Error(err)
		}
		n.Applied(now, nil)
	}
	step("first", first, one, two)
	if n.Intend(first) != first {
		t.Error("another table than the one that is meant")
	}
	second := balanced(1, two)
	step("one is gone", second, one, two)
	step("another comes", balanced(1, two, three), one, two, three)
	step("its endpoints are gone", balanced(0, two, three), one, two, three)
	<-again
	<-again
	step("a moment later", balanced(0, two, three))
	step("all is back", first, one, two)
	step("gone", second, one, two)
	step("back before that is over", first, one, two)
	<-again
	step("and stays", first, one, two)
}

// A node keeps no connections that any node goes on with, if its data plane can do that.
func TestAnywhere(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	ready := []string{"d/web"}
	served := map[netip.Addr]announce.Served{a: {Ready: ready, Anywhere: true}, netip.MustParseAddr("10.96.0.1"): {Ready: ready, Anywhere: true, ClusterIP: true}}
	for _, can := range []bool{true, false} {
		n := announcingTo(t, &notebook{})
		n.carriesOn = func() bool { return can }
		if got := n.anywhere(served, nil); len(got) != 1 || got[a] != can {
			t.Errorf("the plane can: %v; %v", can, got)
		}
	}
}

// TestLastEndpointGone: an address whose last endpoint goes is not taken over by another node,
// which is about to hear of it, unless that one may have an endpoint of its own.
func TestLastEndpointGone(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	for _, byNode := range []bool{true, false} {
		n := announcingTo(t, &notebook{})
		_, there := n.anywhere(map[netip.Addr]announce.Served{a: {Idle: []string{"d/web"}, ByNode: byNode}}, nil)[a]
		if there != byNode {
			t.Errorf("each node uses its own endpoints: %v; another one takes over: %v", byNode, there)
		}
	}
}

// What can't be announced as asked is told once, to whom it concerns.
func TestAnnounceFaults(t *testing.T) {
	n := announcingTo(t, &notebook{})
	n.objects.BGPPeers["tor"].Spec.BFDProfile = "gone"
	n.objects.BGPPeers["tor-again"] = n.objects.BGPPeers["tor"].DeepCopy()
	n.objects.BGPPeers["tor-again"].Name, n.objects.BGPPeers["tor-again"].Spec.BFDProfile = "tor-again", ""
	n.objects.BGPPeers["bad"] = &v1beta2.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: v1beta2.BGPPeerSpec{MyASN: 1, Address: "198.51.100.2"}}
	n.SetService(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", Annotations: map[string]string{announce.AnnotationPrepend: "many"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	})
	n.Applied(balanced(1, "192.0.2.1"), nil)
	n.Intend(balanced(1, "192.0.2.1"))
	n.decide()
	told := n.events.(*noted).texts
	slices.Sort(told)
	want := []string{
		" announceFailed: BGPPeer bad: spec.peerASN: either this or spec.dynamicASN must be given",
		" announceFailed: BGPPeer tor-again: is the router of BGPPeer tor, with which this node holds a session already",
		" announceFailed: BGPPeer tor: spec.bfdProfile: there is no BFDProfile gone; the session is held without BFD",
		"web announceFailed: annotation fairway.dev/bgp-prepend is ignored",
	}
	if len(told) != len(want) {
		t.Fatalf("told %q", told)
	}
	for i := range want {
		if !strings.HasPrefix(told[i], want[i]) {
			t.Errorf("told %q, want %q", told[i], want[i])
		}
	}
}

// An agent that takes another one's place goes on announcing, unless it is for
// another API, node or namespace.
func TestAnnouncerStays(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	api := &rest.Config{Host: "http://127.0.0.1:1"}
	agent := func(node string, api *rest.Config) *Config {
		return &Config{NodeName: node, Log: log, API: api, Events: &noted{}}
	}
	k := Keeper{Log: log}
	defer k.End()
	take := func(config *Config) *Speaker {
		t.Helper()
		n, err := k.Take(config)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := take(agent("n1", api))
	next := agent("n1", api)
	if take(next) != first || first.events != next.Events {
		t.Error("the same configuration begins anew")
	}
	if take(agent("n2", api)) == first {
		t.Error("another node goes on with the first one's")
	}
	if take(nil) != nil || k.now != nil {
		t.Error("announces though nothing is to be announced")
	}
}

// A node that load balancers must leave alone announces nothing, and says why.
func TestUnfit(t *testing.T) {
	condition := func(status corev1.ConditionStatus) corev1.NodeStatus {
		return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: status}}}
	}
	for _, test := range []struct {
		node     corev1.Node
		eligible bool
		want     string
	}{
		{corev1.Node{}, true, ""},
		{corev1.Node{Status: condition(corev1.ConditionFalse)}, true, ""},
		{corev1.Node{Status: condition(corev1.ConditionTrue)}, true, "the node has the condition NetworkUnavailable"},
		{corev1.Node{}, false, "the node is about to be deleted"}, // the taint of the cluster autoscaler
		{corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelNodeExcludeBalancers: "false"}}}, true,
			"the node has the label node.kubernetes.io/exclude-from-external-load-balancers"}, // whatever its value
	} {
		book := &notebook{}
		n := announcingTo(t, book)
		n.Intend(balanced(1, "192.0.2.1"))
		n.Applied(balanced(1, "192.0.2.1"), nil)
		n.SetNode(&test.node, test.eligible)
		n.decide()
		if announced := len(book.routes) > 0; announced != (test.want == "") {
			t.Errorf("%q: announces %v", test.want, book.routes)
		}
		for _, a := range n.status().Addresses {
			if test.want != "" && a.WhyNot != test.want {
				t.Errorf("why not: %q, want %q", a.WhyNot, test.want)
			}
		}
	}
}
