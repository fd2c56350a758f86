package iptables

import (
	"slices"

	"github.com/fairway-net/fairway/model"
)

// wants reports whether the state holds this frontend. Linux never routes
// packets to ::1 out (there is no IPv6 route_localnet).
func (s *state) wants(f *model.Frontend) bool {
	switch {
	case !s.ours(f.Addr):
		return false
	case f.Addr.IsLoopback():
		return f.Addr.Is4() && !s.limits.noLocalnet
	}
	return f.Proto != model.SCTP || !s.limits.noSCTP
}

// addFront files a frontend; what it refuses is filed by refuse.
func (s *state) addFront(fe *model.Frontend) {
	f := &front{Frontend: fe}
	for o, r := range fe.Routes {
		f.verdicts[o] = verdictOf(s.table.Pool(r.Pool))
	}
	s.fronts[fe.Key] = f
	for i, r := range fe.Routes {
		if !slices.ContainsFunc(fe.Routes[:i], func(before model.Route) bool { return before.Pool == r.Pool }) {
			s.users[r.Pool] = append(s.users[r.Pool], f)
			s.touchedPools[r.Pool] = true
		}
	}
	s.register(f)
	if f.forwards() {
		s.index(f)
	}
}

// removeFront undoes addFront.
func (s *state) removeFront(f *front) {
	delete(s.fronts, f.Key)
	for i, r := range f.Routes {
		if !slices.ContainsFunc(f.Routes[:i], func(before model.Route) bool { return before.Pool == r.Pool }) {
			if s.users[r.Pool] = without(s.users[r.Pool], f); s.users[r.Pool] == nil {
				delete(s.users, r.Pool)
			}
			s.touchedPools[r.Pool] = true
		}
	}
	if f.forwards() {
		s.unindex(f)
	}
	s.unregister(f)
}

func without(list []*front, f *front) []*front {
	i := slices.Index(list, f)
	list = slices.Delete(list, i, i+1)
	if len(list) == 0 {
		return nil
	}
	return list
}

// register counts the frontend among its Service port's.
func (s *state) register(f *front) {
	p := s.ports[f.port()]
	if p == nil {
		p = &port{id: f.port()}
		s.ports[f.port()] = p
	}
	p.fronts = append(p.fronts, f)
	s.rename(p, func() {
		if f.forwards() && !f.direct() {
			p.entries.add(f.entry(), f)
		}
		if f.Sources != nil {
			p.sources.add(f.sources(), f)
		}
	})
}

func (s *state) unregister(f *front) {
	p := s.ports[f.port()]
	p.fronts = without(p.fronts, f)
	s.rename(p, func() {
		if f.forwards() && !f.direct() {
			p.entries.remove(f.entry())
		}
		if f.Sources != nil {
			p.sources.remove(f.sources())
		}
	})
	if p.fronts == nil {
		delete(s.ports, f.port())
	}
}

// rename lets edit change which chains a Service port has. If that gives the
// well-known name to another one, all its frontends' rules are touched.
func (s *state) rename(p *port, edit func()) {
	before := p.entries.names(entryChain, p.id)
	guards := p.sources.names(sourcesChain, p.id)
	entry, source := p.entries.first(), p.sources.first()
	edit()
	for _, name := range before {
		if !slices.Contains(p.entries.names(entryChain, p.id), name) {
			s.forget("nat", name)
		}
	}
	for _, name := range guards {
		if !slices.Contains(p.sources.names(sourcesChain, p.id), name) {
			s.forget("nat", name)
			s.forget("filter", name)
		}
	}
	s.touchedPorts[p.id] = true
	if entry != p.entries.first() || source != p.sources.first() {
		for _, f := range p.fronts {
			s.services.touch(makeKey(s.services.addrBits, f.Key))
			s.nodePorts.touch(makeKey(s.nodePorts.addrBits, f.Key))
			s.firewall.touch(makeKey(s.firewall.addrBits, f.Key))
		}
	}
}
