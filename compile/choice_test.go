package compile

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/model"
)

// plain is an endpoint as the API's documentation would have it read: the
// other way of writing package compile's choice, by which it is checked.
type plain struct {
	at                        netip.AddrPort
	ready, terminatingServing bool
	local                     bool
	zones, nodes              []string
}

// checkChoice compares the backends of every pool with a plain reading of the
// rules. Weights of 0 are left to a test of their own.
func (w *world) checkChoice(table *model.Table) {
	w.t.Helper()
	for _, s := range w.services {
		if s.Annotations[AnnotationWeights] != "" {
			continue
		}
		for _, p := range s.Spec.Ports {
			for _, six := range []bool{false, true} {
				id := model.PoolID{Name: s.Namespace + "/" + s.Name, IPv6: six}
				if p.Name != "" {
					id.Name += ":" + p.Name
				}
				id.Proto, _ = protocol(p.Protocol)
				endpoints := w.plain(s, p, six)
				w.checkPool(table.Pool(id), endpoints, w.cluster(endpoints))
				id.Local = true
				endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e plain) bool { return !e.local })
				w.checkPool(table.Pool(id), endpoints, usable(endpoints))
			}
		}
	}
}

func (w *world) checkPool(p *model.Pool, all, want []plain) {
	w.t.Helper()
	if p == nil {
		return
	}
	var got, wanted []netip.AddrPort
	for _, b := range p.Backends {
		got = append(got, b.AddrPort())
	}
	for _, e := range want {
		wanted = append(wanted, e.at)
	}
	slices.SortFunc(wanted, netip.AddrPort.Compare)
	if !slices.Equal(got, wanted) {
		w.t.Errorf("pool %s: backends %v, want %v", p.ID, got, wanted)
	}
	if p.ID.Proto != model.UDP && len(p.Backends)+len(p.Draining) != len(all) {
		w.t.Errorf("pool %s: %d take connections and %d drain of %d", p.ID, len(p.Backends), len(p.Draining), len(all))
	}
	if len(wanted) == 0 && !p.ID.Local && p.Empty != model.Reject {
		w.t.Errorf("pool %s: an empty cluster pool must reject", p.ID)
	}
}

// cluster are the endpoints for traffic under the Cluster policy.
func (w *world) cluster(all []plain) []plain {
	list := usable(all)
	if len(list) == 0 || !list[0].ready {
		return list
	}
	for _, hinted := range []func(plain) ([]string, string){
		func(e plain) ([]string, string) { return e.nodes, w.node.Name },
		func(e plain) ([]string, string) { return e.zones, w.node.Zone },
	} {
		var ours []plain
		every := true
		for _, e := range list {
			names, own := hinted(e)
			every = every && len(names) > 0
			if slices.Contains(names, own) {
				ours = append(ours, e)
			}
		}
		if every && len(ours) > 0 {
			return ours
		}
	}
	return list
}

// usable are the ready ones, or else those that serve while they terminate.
func usable(all []plain) []plain {
	var ready, terminating []plain
	for _, e := range all {
		if e.ready {
			ready = append(ready, e)
		} else if e.terminatingServing {
			terminating = append(terminating, e)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return terminating
}

// plain reads all slices for a Service port.
func (w *world) plain(s *corev1.Service, p corev1.ServicePort, six bool) []plain {
	byAddr := map[netip.AddrPort]plain{}
	for _, sl := range w.slices {
		if sl.Labels[discoveryv1.LabelServiceName] != s.Name || (sl.AddressType == discoveryv1.AddressTypeIPv6) != six || sl.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, sp := range sl.Ports {
			if sp.Port == nil || *sp.Name != p.Name || *sp.Protocol != p.Protocol {
				continue
			}
			for _, e := range sl.Endpoints {
				a, err := netip.ParseAddr(e.Addresses[0])
				if err != nil || a.Is6() != six || a.IsLoopback() || a.IsLinkLocalUnicast() {
					continue
				}
				at := netip.AddrPortFrom(a, uint16(*sp.Port))
				byAddr[at] = w.readPlain(byAddr[at], at, e, s.Spec.PublishNotReadyAddresses)
			}
		}
	}
	var list []plain
	for _, e := range byAddr {
		list = append(list, e)
	}
	return list
}

func (w *world) readPlain(into plain, at netip.AddrPort, e discoveryv1.Endpoint, allReady bool) plain {
	is := func(b *bool, unset bool) bool {
		if b == nil {
			return unset
		}
		return *b
	}
	c := e.Conditions
	into.at = at
	into.ready = into.ready || allReady || is(c.Ready, true)
	into.terminatingServing = into.terminatingServing || is(c.Serving, true) && is(c.Terminating, false)
	into.local = into.local || e.NodeName != nil && *e.NodeName == w.node.Name
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			into.zones = append(into.zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			into.nodes = append(into.nodes, n.Name)
		}
	}
	return into
}

// checkReasons holds Candidates against the pools: an endpoint has a reason for
// taking new connections exactly where the pool has it as a backend.
func (w *world) checkReasons(c *Compiler, table *model.Table) {
	w.t.Helper()
	for _, p := range table.SortedPools() {
		var chosen, backends []netip.AddrPort
		for _, k := range c.Candidates(p.ID) {
			if k.Choice.Chosen() {
				chosen = append(chosen, netip.AddrPortFrom(k.Addr, k.Port))
			}
			if k.Slice == "" {
				w.t.Errorf("pool %s: no slice lists %s", p.ID, k.Addr)
			}
		}
		for _, b := range p.Backends {
			backends = append(backends, b.AddrPort())
		}
		if !slices.Equal(chosen, backends) {
			w.t.Errorf("pool %s: chosen for a reason %v, backends %v", p.ID, chosen, backends)
		}
	}
}

// TestCandidates names the reason for every endpoint that isn't used.
func TestCandidates(t *testing.T) {
	no, yes, nodeA, nodeB := false, true, "a", "b"
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Ports:                 []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
	}
	slice := func(name, port string, proto corev1.Protocol, addressType discoveryv1.AddressType, weight string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		number := int32(8080)
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: addressType, Ports: []discoveryv1.EndpointPort{{Name: &port, Protocol: &proto, Port: &number}}, Endpoints: endpoints,
		}
		if weight != "" {
			s.Annotations = map[string]string{AnnotationWeight: weight}
		}
		return s
	}
	at := func(a, node string, c discoveryv1.EndpointConditions, zone string) discoveryv1.Endpoint {
		e := discoveryv1.Endpoint{Addresses: []string{a}, NodeName: &node, Conditions: c}
		if zone != "" {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
		return e
	}
	ready := discoveryv1.EndpointConditions{}
	c := New(Config{})
	c.SetNode(Node{Name: "a", Zone: "here", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	c.SetService(service)
	for _, s := range []*discoveryv1.EndpointSlice{
		slice("good", "http", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4, "",
			at("10.0.0.1", nodeA, ready, "here"),
			at("10.0.0.2", nodeB, ready, "there"),
			at("10.0.0.3", nodeA, discoveryv1.EndpointConditions{Ready: &no, Serving: &no}, ""),
			at("10.0.0.4", nodeA, discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}, ""),
			at("10.0.0.5", nodeA, discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}, "")),
		slice("light", "http", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4, "0", at("10.0.0.6", nodeA, ready, "here")),
		slice("named", "web", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv4, "", at("10.0.0.7", nodeA, ready, "")),
		slice("spoken", "http", corev1.ProtocolUDP, discoveryv1.AddressTypeIPv4, "", at("10.0.0.8", nodeA, ready, "")),
		slice("six", "http", corev1.ProtocolTCP, discoveryv1.AddressTypeIPv6, "", at("fd00::9", nodeA, ready, "")),
	} {
		c.SetSlice(s)
	}
	c.Table()
	id := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	for _, test := range []struct {
		local bool
		want  map[string]Choice
	}{
		{false, map[string]Choice{
			"10.0.0.1": ReadySameZone, "10.0.0.2": OtherZone, "10.0.0.3": NotReady, "10.0.0.4": Terminating, "10.0.0.5": Terminating,
			"10.0.0.6": WeightZero, "10.0.0.7": OtherPort, "10.0.0.8": OtherProtocol, "fd00::9": OtherFamily,
		}},
		{true, map[string]Choice{
			"10.0.0.1": Ready, "10.0.0.2": NotLocal, "10.0.0.3": NotReady, "10.0.0.4": Terminating, "10.0.0.5": Terminating,
			"10.0.0.6": WeightZero, "10.0.0.7": OtherPort, "10.0.0.8": OtherProtocol, "fd00::9": OtherFamily,
		}},
	} {
		id.Local = test.local
		got := map[string]Choice{}
		for _, k := range c.Candidates(id) {
			got[k.Addr.String()] = k.Choice
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("local %t: got %v, want %v", test.local, got, test.want)
		}
	}
	if list := c.Candidates(model.PoolID{Name: "default/none", Proto: model.TCP}); list != nil {
		t.Errorf("a pool of no Service has candidates: %v", list)
	}
}
