package iptables

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// counters adds up what rules have counted.
type counters struct {
	mu      sync.Mutex
	tally   kernel.Tally
	pools   map[string]string // by chain: the Service port whose pool it chooses in
	poolsOf *model.Table      // whose pools these are
	packets kernel.Packets
}

// frontendCounts reads what was counted of frontends. All that a
// Service port's frontends have counted is told of one of them, since they share
// chains. Bytes aren't counted: table nat sees first packets only.
func (p *Plane) frontendCounts(ctx context.Context) ([]kernel.Count, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	err := p.readCounters(ctx)
	return c.tally.Counts(), err
}

// packetCounts tells what rules have counted of all packets, and how many rules there
// are.
func (p *Plane) packetCounts(ctx context.Context) (kernel.Packets, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	err := p.readCounters(ctx)
	out := c.packets
	if counts := p.counts.Load(); counts != nil {
		out.Rules = *counts
	}
	return out, err
}

// readCounters adds what was counted since the last reading, unless that was just
// now. iptables-legacy gives out a table as a whole, which takes its time.
func (p *Plane) readCounters(ctx context.Context) error {
	c, table := &p.counters, p.inForce.Load()
	if table == nil || !c.tally.Due() {
		return nil
	}
	return p.readAll(ctx, table)
}

func (p *Plane) readAll(ctx context.Context, table *model.Table) error {
	c := &p.counters
	fresh := c.packets
	err := c.tally.Read(table, func() error {
		for _, f := range iptables.Families() {
			t := p.counterChainsOf(f)
			if t == nil {
				continue
			}
			for _, of := range tables {
				where := f.Command() + " " + of + " "
				err := p.tool.Count(ctx, f, of, t.of(of), func(r iptables.Counted) { c.take(where+r.Chain, of, r, table, &fresh) })
				if err != nil {
					return fmt.Errorf("read counters: %w", err)
				}
			}
		}
		return nil
	})
	if err == nil {
		c.packets = fresh
	}
	return err
}

// take adds a rule's counter to that of its Service port.
func (c *counters) take(where, table string, r iptables.Counted, in *model.Table, packets *kernel.Packets) {
	if r.Packets == 0 {
		return
	}
	n := c.tally.Since(kernel.TallyID{Where: where, What: r.Rule}, kernel.Count{Connections: r.Packets})
	switch {
	case r.Chain == invalidChain && refusing(r.Rule):
		packets.InvalidDropped += n.Connections
	case table == "nat" && toPool(r.Rule):
		if name := c.poolOf(target(r.Rule), in); name != "" {
			c.tally.Add(name, n)
		}
	case table == "nat" && strings.HasPrefix(r.Chain, nodePortsChain) && onLocalhost(r.Rule):
		packets.LocalhostNodePorts += n.Connections
	case table == "filter" && refusing(r.Rule):
		if name := nameIn(r.Rule); name != "" {
			c.tally.Add(name, kernel.Count{Refused: n.Connections})
		}
	}
}

// poolOf is the Service port whose pool a chain chooses in; "" if it is gone already.
func (c *counters) poolOf(chain string, in *model.Table) string {
	if c.poolsOf != in {
		c.poolsOf, c.pools = in, make(map[string]string, in.NumPools())
		for p := range in.Pools() {
			c.pools[poolName(p.ID)] = p.ID.Name
		}
	}
	return c.pools[chain]
}
