package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

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
