// Package conntrack does what every plane on netfilter owes to connections
// when the table changes: it forgets flows to backends that are gone, and ends TCP
// connections of such backends as their pool says. The decisions
// ([Sweep]) are pure; [Sweep.Run] carries them out over ctnetlink.
//
// A plane calls Plan with the table it leaves and the one it has just put into
// force, and runs what it gets, after the kernel's rules have changed: a flow
// forgotten before that would be led astray again.
package conntrack

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// Fate is what becomes of a flow.
type Fate struct {
	Forget bool
	// Expire, if not 0, ends the flow after this time, whatever passes. It is
	// kept by the kernel, so it outlives this process.
	Expire time.Duration
	// Renew takes such an end back, since the flow's backend is there again.
	Renew bool
}

// Sweep says which flows a change of the table makes stale.
type Sweep struct {
	old, want *model.Table
	all       bool // every frontend counts as touched: what happened before is not known
	frontends map[model.Key]bool
	pools     map[model.PoolID]bool
	addrs     []netip.Addr // where node ports began or ceased to answer
	protos    []model.Protocol
	kinds     []kind // what to list, so that the flows of protos are in it
	urgent    bool   // backends or frontends have gone, or are back before a deadline
	earlier   *Sweep // of a change before, which has not been run
}

// Plan tells what to look for after a change from old to want, of which
// changes are the differences. It is nil if no flow can have become stale. A
// nil old means that nothing is known of before: all flows to frontends of
// want are looked at.
func Plan(old, want *model.Table, changes *model.Changes) *Sweep {
	s := &Sweep{old: old, want: want, frontends: map[model.Key]bool{}, pools: map[model.PoolID]bool{}}
	if old == nil {
		s.old, s.all, s.urgent = model.NewTable(), true, true
		s.protos, s.kinds = []model.Protocol{model.UDP, model.TCP}, []kind{everything}
		if want.NumFrontends() == 0 {
			return nil
		}
		return s
	}
	touched := map[kind]bool{}
	for _, c := range changes.Frontends {
		if c.Old != nil && c.New != nil {
			continue
		}
		s.frontends[c.Key()] = true
		s.urgent = s.urgent || c.New == nil
		if c.Key().Proto == model.UDP || c.Key().Proto == model.TCP && (c.Old != nil && hasOrphans(old, c.Old) || c.New != nil && hasDeadlines(want, c.New)) {
			touched[kind{familyOf(c.Key().Addr), c.Key().Proto}] = true
		}
	}
	if changes.Settings {
		s.planAddrs(touched)
	}
	for _, c := range changes.Pools {
		stale := false
		s.urgent = s.urgent || len(c.Gone()) > 0 || mayRenew(c)
		switch c.ID().Proto {
		case model.UDP:
			first := c.Old != nil && len(c.Old.Backends) == 0 && c.New != nil && len(c.New.Backends) > 0
			stale = first || len(c.Gone()) > 0
		case model.TCP:
			// Of a pool that others are left in, no listing is worth the few SYNs that are lost.
			stale = c.New != nil && len(c.Gone()) > 0 && (c.New.Orphans != model.OrphansKeep || len(c.New.Backends) == 0) || mayRenew(c)
		}
		if stale {
			s.pools[c.ID()] = true
			touched[kindOf(c.ID())] = true
		}
	}
	if len(touched) == 0 {
		return nil
	}
	s.list(touched)
	return s
}

// planAddrs has flows of node ports looked at where addresses of the node have
// come or gone.
func (s *Sweep) planAddrs(touched map[kind]bool) {
	came, went := model.NodePortAddrChanges(s.old.Settings, s.want.Settings)
	s.addrs = append(came, went...)
	if len(s.addrs) == 0 {
		return
	}
	s.urgent = true
	for f := range s.old.Frontends() {
		if f.IsNodePort() && f.Proto == model.TCP && hasOrphans(s.old, f) {
			touched[kind{familyOf(f.Addr), f.Proto}] = true
		}
	}
	for f := range s.want.Frontends() {
		if f.IsNodePort() && f.Proto == model.UDP {
			touched[kind{familyOf(f.Addr), f.Proto}] = true
		}
	}
}

func kindOf(id model.PoolID) kind {
	if id.IPv6 {
		return kind{unix.AF_INET6, id.Proto}
	}
	return kind{unix.AF_INET, id.Proto}
}

// list has flows of these kinds looked at: by themselves or, since there are few
// others, among all if those of TCP are not the only ones.
func (s *Sweep) list(touched map[kind]bool) {
	s.kinds = slices.Collect(maps.Keys(touched))
	for _, p := range []model.Protocol{model.UDP, model.TCP} {
		if slices.ContainsFunc(s.kinds, func(k kind) bool { return k.proto == p }) {
			s.protos = append(s.protos, p)
		}
	}
	if len(s.kinds) > 1 && slices.Contains(s.protos, model.TCP) {
		s.kinds = []kind{everything}
	}
}

// Protocols are those whose flows have to be looked at.
func (s *Sweep) Protocols() []model.Protocol { return s.protos }

// isUrgent reports whether flows lead to what has gone.
func (s *Sweep) isUrgent() bool { return s != nil && (s.urgent || s.earlier.isUrgent()) }

// after has a sweep see to what an earlier one would have, by the table of now. The earlier
// one may be nil.
func (s *Sweep) after(earlier *Sweep) *Sweep {
	if earlier == nil {
		return s
	}
	for e := earlier; e != nil; e = e.earlier {
		e.want = s.want
	}
	touched := map[kind]bool{}
	for _, k := range append(slices.Clone(s.kinds), earlier.kinds...) {
		touched[k] = true
	}
	protos := append(slices.Clone(s.protos), earlier.protos...)
	slices.Sort(protos)
	s.earlier, s.protos, s.kinds = earlier, slices.Compact(protos), slices.Collect(maps.Keys(touched))
	if len(s.kinds) > 1 && (touched[everything] || slices.Contains(s.protos, model.TCP)) {
		s.kinds = []kind{everything}
	}
	return s
}

// Fate says what becomes of a flow.
func (s *Sweep) Fate(f *Flow) Fate {
	fate := s.fate(f)
	for e := s.earlier; e != nil && fate == (Fate{}); e = e.earlier {
		fate = e.fate(f)
	}
	return fate
}

func (s *Sweep) fate(f *Flow) Fate {
	key := model.Key{Addr: f.Frontend.Addr(), Port: f.Frontend.Port(), Proto: f.Proto}
	front, before := s.want.Lookup(key), s.old.Lookup(key)
	if front == nil && before == nil {
		return s.unknown(key, f)
	}
	if !s.touched(key, front, before) {
		return Fate{}
	}
	if s.current(front, f.Backend) {
		return Fate{Renew: f.Proto == model.TCP && f.Translated() && f.Status&fixedTimeout != 0}
	}
	if f.Proto == model.UDP {
		return Fate{Forget: true}
	}
	switch {
	case !f.Replied && (f.Translated() || front != nil):
		// A SYN to a backend that is gone, or from before the frontend was there: on this
		// entry its retries would go astray for two minutes.
		return Fate{Forget: true}
	case !f.Translated():
		return Fate{}
	}
	return s.orphan(front, before)
}

// unknown is about flows to what was no frontend before and is none now. After
// a start without memory, one that was led from a Service address to a backend
// by an earlier process is stale.
func (s *Sweep) unknown(key model.Key, f *Flow) Fate {
	if !s.all || f.Proto != model.UDP || !f.Translated() {
		return Fate{}
	}
	for _, exempt := range s.want.Settings.Exempt {
		if exempt == key.Addr {
			return Fate{}
		}
	}
	for _, prefix := range s.want.Settings.Reserved {
		if prefix.Contains(key.Addr) {
			return Fate{Forget: true}
		}
	}
	return Fate{}
}

func (s *Sweep) touched(key model.Key, front, before *model.Frontend) bool {
	if s.all || slices.Contains(s.addrs, key.Addr) {
		return true
	}
	for _, f := range []*model.Frontend{front, before} {
		if f != nil && s.frontends[f.Key] {
			return true
		}
	}
	if front == nil || len(s.pools) == 0 {
		return false
	}
	for _, r := range front.Routes {
		if s.pools[r.Pool] {
			return true
		}
	}
	return false
}

// current reports whether the backend still serves the frontend, for new
// connections or for those it has.
func (s *Sweep) current(front *model.Frontend, backend netip.AddrPort) bool {
	return s.want.Keeps(front, backend)
}

// orphan says what the frontend's pools want done with a TCP connection whose
// backend is gone. The pools of a frontend belong to one Service port and say
// the same; if not, the one that ends it soonest decides.
func (s *Sweep) orphan(front, before *model.Frontend) Fate {
	table := s.want
	if front == nil {
		front, table = before, s.old
	}
	var fate Fate
	for _, r := range front.Routes {
		p := table.Pool(r.Pool)
		switch {
		case p.Orphans == model.OrphansReset, p.Orphans == model.OrphansDeadline && p.OrphanDeadline <= 0:
			return Fate{Forget: true}
		case p.Orphans == model.OrphansDeadline && (fate.Expire == 0 || p.OrphanDeadline < fate.Expire):
			fate.Expire = p.OrphanDeadline
		}
	}
	return fate
}

// mayRenew reports whether a pool has got backends whose connections may have a deadline,
// since they were gone before.
func mayRenew(c model.PoolChange) bool {
	return c.Old != nil && c.New != nil && c.New.Orphans == model.OrphansDeadline && len(model.PoolChange{Old: c.New, New: c.Old}.Gone()) > 0
}

func hasDeadlines(t *model.Table, f *model.Frontend) bool {
	return slices.ContainsFunc(f.Routes[:], func(r model.Route) bool { return t.Pool(r.Pool).Orphans == model.OrphansDeadline })
}

func hasOrphans(t *model.Table, f *model.Frontend) bool {
	for _, r := range f.Routes {
		if t.Pool(r.Pool).Orphans != model.OrphansKeep {
			return true
		}
	}
	return false
}
