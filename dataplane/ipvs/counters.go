package ipvs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// counters adds up what virtual servers and rules have counted.
type counters struct {
	mu      sync.Mutex
	servers kernel.Tally
	rules   kernel.Tally
	dropped uint64
}

// frontendCounts reads what was counted of frontends. All that a
// Service port's virtual servers have counted is told of one of its frontends,
// since those of marks are several frontends'. Bytes are counted in any case; the
// kernel adds up every other second (ip_vs_est.c). Refused is what ipsets have
// marked for that, as there was no backend; what comes from a source that isn't
// let in is not counted.
func (p *Plane) frontendCounts(ctx context.Context) ([]kernel.Count, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	table := p.inForce.Load()
	if table == nil || !c.servers.Due() {
		return c.servers.Counts(), ctx.Err()
	}
	err := c.servers.Read(table, func() error { return errors.Join(p.readStatistics(table), p.readRefusals(table)) })
	return c.servers.Counts(), err
}

// readStatistics reads them by a socket of its own: Apply may be using the other.
func (p *Plane) readStatistics(table *model.Table) error {
	b, err := p.open()
	if err != nil {
		return err
	}
	if closer, ok := b.(interface{ Close() }); ok {
		defer closer.Close()
	}
	found, err := b.GetServices()
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	var marks map[uint32]string
	for _, m := range found {
		id, _, ok := lvs.FromService(m)
		if !ok {
			continue
		}
		var name string
		switch f := table.Frontend(id.Key); {
		case id.Mark == 0 && f != nil:
			name = f.Name
		case id.Mark&markRangeMask == markRange:
			if marks == nil {
				marks = marksOf(table, p.options.MasqueradeMark)
			}
			name = marks[id.Mark]
		}
		if name == "" {
			continue // somebody else's, or on its way out
		}
		p.counters.servers.Add(name, p.counters.servers.Since(kernel.TallyID{Where: id.String(), What: name}, kernel.Count{
			Connections: uint64(m.Stats.Connections), In: m.Stats.BytesIn, Out: m.Stats.BytesOut,
		}))
	}
	return nil
}

// readRefusals reads how many first packets the sets of origins have marked to be
// refused or dropped; by a socket of its own, too.
func (p *Plane) readRefusals(table *model.Table) error {
	sets, err := ipset.Open()
	if err != nil {
		return err
	}
	defer sets.Close()
	for _, kind := range []setKind{setFromPod, setFromNode, setFromOutside} {
		for _, ipv6 := range []bool{false, true} {
			id := setID{kind, ipv6}
			l, err := sets.List(id.name())
			if err != nil {
				return err
			}
			if l == nil {
				continue
			}
			for _, e := range l.Elements {
				f := table.Frontend(model.Key{Addr: e.Addr, Port: e.Port, Proto: e.Proto})
				if f == nil || e.Mark.Value != markRefuse && e.Mark.Value != markDrop {
					continue
				}
				counter := kernel.TallyID{Where: id.name(), What: e.Text(id.typ()) + " " + e.Mark.Text()}
				p.counters.servers.Add(f.Name, p.counters.servers.Since(counter, kernel.Count{Refused: e.Packets}))
			}
		}
	}
	return nil
}

// marksOf are the Service ports whose pools virtual servers of marks have. Where
// two would have the same mark, one of them has the next, and isn't told apart.
func marksOf(t *model.Table, masquerade uint32) map[uint32]string {
	marks := map[uint32]string{}
	for f := range t.Frontends() {
		main := f.Routes[model.FromOutside].Pool
		for o, r := range f.Routes {
			if r.Pool == main {
				continue
			}
			for m := range otherServer(t.Settings, f, model.Origin(o)).candidates(masquerade) {
				marks[m] = f.Name
				break
			}
		}
	}
	return marks
}

// packetCounts tells what rules have counted of all packets, and how many rules there
// are.
func (p *Plane) packetCounts(ctx context.Context) (kernel.Packets, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	table := p.inForce.Load()
	if table == nil {
		return kernel.Packets{}, ctx.Err()
	}
	var err error
	if c.rules.Due() {
		dropped := c.dropped
		err = c.rules.Read(table, func() error { return p.readDrops(ctx, &dropped) })
		if err == nil {
			c.dropped = dropped
		}
	}
	return kernel.Packets{InvalidDropped: c.dropped, Rules: p.countRules(table.Settings)}, err
}

// readDrops adds what was dropped because conntrack couldn't place it.
func (p *Plane) readDrops(ctx context.Context, dropped *uint64) error {
	for _, f := range iptables.Families() {
		err := p.iptables.Count(ctx, f, "filter", []string{chainFilter, chainForward}, func(r iptables.Counted) {
			if strings.Contains(r.Rule, "--ctstate INVALID") {
				id := kernel.TallyID{Where: f.Command() + " " + r.Chain, What: r.Rule}
				*dropped += p.counters.rules.Since(id, kernel.Count{Connections: r.Packets}).Connections
			}
		})
		if err != nil && (f == iptables.IPv4 || !kernel.IsMissing(err)) {
			return fmt.Errorf("read counters: %w", err)
		}
	}
	return nil
}

// countRules counts rules, whose number doesn't depend on that of Services. A
// round that compares writes all or none.
func (p *Plane) countRules(settings *model.Settings) []kernel.RuleCount {
	var counts []kernel.RuleCount
	for _, f := range iptables.Families() {
		for _, table := range (ruleSet{f, settings, p.options.MasqueradeMark}).tables() {
			n := len(table.jumps)
			for _, c := range table.chains {
				n += len(c.Rules)
			}
			counts = append(counts, kernel.RuleCount{IPv6: f == iptables.IPv6, Table: table.name, Total: n})
		}
	}
	return counts
}
