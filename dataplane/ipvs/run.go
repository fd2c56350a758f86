package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// run carries a plan out, in an order in which whatever is led somewhere finds
// it there: destinations before what sends packets to them, refusals and marks
// before the servers that they keep packets from, and the other way round on
// the way out. Rules are written too if settings are given: those that refuse
// packets when everything is there, as another plane may have served them
// until then; the others before the servers that need them, unless the iptables
// mode has chains of the same names, which do its work until then.
func (p *Plane) run(ctx context.Context, plan *plan, settings *model.Settings) error {
	before := settings
	if settings != nil {
		var err error
		if plan.relayed, err = migrate.Relays(); err != nil {
			return err
		}
		takeover, err := p.iptablesMode(ctx)
		if err != nil {
			return err
		}
		if takeover {
			before = nil
			for _, f := range iptables.Families() {
				if err := p.takeOver(ctx, f); err != nil && (f == iptables.IPv4 || !kernel.IsMissing(err)) {
					return err
				}
			}
		}
	}
	for _, step := range []func() error{
		func() error { return p.retire(plan) },
		func() error { return p.growServers(plan) },
		func() error { return p.putEntries(plan) },
		func() error { return p.removeEntries(plan, true) },
		func() error { return p.reschedule(plan) },
		func() error { return p.writeRules(ctx, plan, before, ruleSet.early) },
		func() error { return p.newServers(plan) },
		func() error { return p.bind(plan) },
		func() error { return p.writeRules(ctx, plan, settings, ruleSet.tables) },
		func() error { return p.unbind(plan) },
		func() error { return p.removeServersOf(plan, false) },
		func() error { return p.removeEntries(plan, false) },
		func() error { return p.shrinkServers(plan) },
		func() error { return p.removeServersOf(plan, true) },
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// putEntries fills the sets: those that make exceptions before those to which
// they are exceptions, which is the order of kinds backwards.
func (p *Plane) putEntries(plan *plan) error {
	for kind := numSets - 1; kind < numSets; kind-- {
		if kind == setAddresses {
			continue
		}
		for _, ipv6 := range []bool{false, true} {
			id := setID{kind, ipv6}
			if err := p.sets.Add(id.of(), id.name(), elements(plan.puts[id])); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeEntries empties the sets of what left: first, with staying set, the
// marks that kept packets from frontends that stay, then all the rest.
func (p *Plane) removeEntries(plan *plan, staying bool) error {
	for kind := range numSets {
		for _, ipv6 := range []bool{false, true} {
			id := setID{kind, ipv6}
			removes := plan.removes[id]
			if staying && !setKinds[kind].marks || len(removes) == 0 {
				continue
			}
			if staying {
				removes = plan.ofStayingFrontends(id)
			}
			if err := p.sets.Remove(id.of(), id.name(), elements(removes)); err != nil {
				return err
			}
			for e := range removes {
				delete(plan.removes[id], e)
			}
		}
	}
	return nil
}

func (p *plan) ofStayingFrontends(id setID) map[ipset.Element]ipset.Mark {
	stay := map[ipset.Element]ipset.Mark{}
	for e, m := range p.removes[id] {
		if p.want.Frontend(model.Key{Addr: e.Addr, Port: e.Port, Proto: e.Proto}) != nil {
			stay[e] = m
		}
	}
	return stay
}

// elements lists elements in order.
func elements(m map[ipset.Element]ipset.Mark) []ipset.Marked {
	list := make([]ipset.Marked, 0, len(m))
	for e, value := range m {
		list = append(list, ipset.Marked{Element: e, Mark: value})
	}
	slices.SortFunc(list, func(a, b ipset.Marked) int { return a.Compare(b.Element) })
	return list
}

func (p *Plane) bind(plan *plan) error {
	for _, ipv6 := range []bool{false, true} {
		id := setID{setAddresses, ipv6}
		if err := p.sets.Add(id.of(), id.name(), elements(plan.puts[id])); err != nil {
			return err
		}
	}
	for a := range plan.bind {
		if a.Is4() && !reserved(plan.want.Settings, a) { // somebody else on the link may answer for it
			if err := p.settings.QuietARP(); err != nil {
				return err
			}
		}
	}
	return p.dummy.bind(slices.SortedFunc(maps.Keys(plan.bind), netip.Addr.Compare))
}

func (p *Plane) unbind(plan *plan) error {
	for a := range plan.unbind {
		if err := p.dummy.unbind(a); err != nil {
			return err
		}
	}
	return nil
}

// writeRules writes both families' rules. IPv6 may be missing as long as the
// table has none.
func (p *Plane) writeRules(ctx context.Context, plan *plan, settings *model.Settings, which func(ruleSet) []ruleTable) error {
	if settings == nil {
		return nil
	}
	for _, f := range iptables.Families() {
		err := p.syncRules(ctx, f, which(ruleSet{f, settings, p.options.MasqueradeMark}))
		if f == iptables.IPv6 && kernel.IsMissing(err) && !plan.hasIPv6() {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) hasIPv6() bool {
	for f := range p.want.Frontends() {
		if f.Addr.Is6() {
			return true
		}
	}
	return false
}

// reservedEntries list what no frontend serves and nothing may go out to.
func reservedEntries(settings *model.Settings) []entry {
	var list []entry
	for _, r := range settings.Reserved {
		for _, half := range halves(r) {
			list = append(list, entry{setID{setReserved, r.Addr().Is6()}, ipset.Element{Net: half}})
		}
	}
	for _, a := range settings.Exempt {
		list = append(list, entry{setID{setExempt, a.Is6()}, ipset.Element{Addr: a}})
	}
	return list
}
