package iptables

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// counters adds up what rules have counted.
type counters struct {
	mu                 sync.Mutex
	last               map[uint64]uint64 // by rule: packets at the last reading
	services           map[string]*kernel.Count
	pools              map[string]string // by chain: the Service port whose pool it chooses in
	invalid, localhost uint64
	read               time.Time // the last reading's end
	took               time.Duration
}

// countShare bounds what reading costs where it is dear (iptables-legacy gives
// out a table as a whole): a reading is followed by this many times its own
// duration without another. Who asks meanwhile gets what the last one found.
const countShare = 50

// Counters reads what was counted of frontends: see dataplane.Counter. All that a
// Service port's frontends have counted is told of one of them, since they share
// chains. Bytes aren't counted: table nat sees first packets only.
func (p *Plane) Counters(ctx context.Context) ([]kernel.Count, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := p.readCounters(ctx); err != nil {
		return nil, err
	}
	list := make([]kernel.Count, 0, len(c.services))
	for _, count := range c.services {
		list = append(list, *count)
	}
	return list, nil
}

// Packets tells what rules have counted of all packets, and how many rules there
// are: see dataplane.PacketCounter.
func (p *Plane) Packets(ctx context.Context) (kernel.Packets, error) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := p.readCounters(ctx); err != nil {
		return kernel.Packets{}, err
	}
	out := kernel.Packets{Counted: true, InvalidDropped: c.invalid, LocalhostNodePorts: c.localhost}
	if counts := p.counts.Load(); counts != nil {
		out.Rules = *counts
	}
	return out, nil
}

// readCounters adds what was counted since the last reading, unless that was just
// now.
func (p *Plane) readCounters(ctx context.Context) error {
	c, table := &p.counters, p.inForce.Load()
	began := time.Now()
	if table == nil || began.Sub(c.read) < countShare*c.took {
		return nil
	}
	defer func() {
		c.read = time.Now()
		c.took = c.read.Sub(began)
	}()
	seen := map[uint64]uint64{}
	fresh := map[string]*kernel.Count{}
	for _, f := range iptables.Families() {
		t := p.tellingOf(f)
		if t == nil {
			continue
		}
		for _, of := range tables {
			err := p.tool.Count(ctx, f, of, t.of(of), func(r iptables.Counted) { c.take(f, of, r, table, seen, fresh) })
			if err != nil {
				return fmt.Errorf("read counters: %w", err)
			}
		}
	}
	c.last = seen
	c.add(table, fresh)
	return nil
}

var counterSeed = maphash.MakeSeed()

// take adds a rule's counter to that of its Service port.
func (c *counters) take(f iptables.Family, table string, r iptables.Counted, in *model.Table, seen map[uint64]uint64, fresh map[string]*kernel.Count) {
	if r.Packets == 0 {
		return
	}
	id := maphash.Comparable(counterSeed, [3]string{f.Command() + table, r.Chain, r.Rule})
	before := c.last[id]
	seen[id] = r.Packets
	n := r.Packets
	if before <= n {
		n -= before // otherwise the rule was made anew
	}
	if r.Chain == invalidChain {
		if refusing(r.Rule) {
			c.invalid += n
		}
		return
	}
	if strings.Contains(r.Rule, "-d 127.") && strings.HasPrefix(r.Chain, nodePortsChain) {
		c.localhost += n
	}
	var name string
	switch {
	case table == "nat" && toPool(r.Rule):
		name = c.poolOf(target(r.Rule), in)
	case table == "filter" && refusing(r.Rule):
		name = nameIn(r.Rule)
	}
	if name == "" {
		return
	}
	if fresh[name] == nil {
		fresh[name] = &kernel.Count{}
	}
	if table == "nat" {
		fresh[name].Connections += n
	} else {
		fresh[name].Refused += n
	}
}

// poolOf is the Service port whose pool a chain chooses in.
func (c *counters) poolOf(chain string, in *model.Table) string {
	if name, known := c.pools[chain]; known {
		return name
	}
	c.pools = map[string]string{}
	for p := range in.Pools() {
		c.pools[poolName(p.ID)] = p.ID.Name
	}
	if _, found := c.pools[chain]; !found {
		c.pools[chain] = "" // gone already
	}
	return c.pools[chain]
}

// add adds what is fresh. The frontend under which a Service port's count is told
// stays the same as long as it is there; then the count begins anew.
func (c *counters) add(table *model.Table, fresh map[string]*kernel.Count) {
	var frontends map[string]model.Key
	if c.services == nil {
		c.services = map[string]*kernel.Count{}
	}
	for name, count := range c.services {
		if f := table.Frontend(count.Frontend); f == nil || f.Name != name {
			delete(c.services, name)
		}
	}
	for name, n := range fresh {
		count := c.services[name]
		if count == nil {
			if frontends == nil {
				frontends = firstFrontends(table)
			}
			key, found := frontends[name]
			if !found {
				continue
			}
			count = &kernel.Count{Frontend: key}
			c.services[name] = count
		}
		count.Connections += n.Connections
		count.Refused += n.Refused
	}
}

// firstFrontends are one frontend of each Service port.
func firstFrontends(t *model.Table) map[string]model.Key {
	first := map[string]model.Key{}
	for f := range t.Frontends() {
		if key, found := first[f.Name]; !found || f.Key.Compare(key) < 0 {
			first[f.Name] = f.Key
		}
	}
	return first
}
