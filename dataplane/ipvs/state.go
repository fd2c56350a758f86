package ipvs

import (
	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// state is what the kernel should hold for a table, as far as it must be
// remembered to work out what the next table changes.
type state struct {
	masquerade    uint32 // the packet-mark bit
	table         *model.Table
	fronts        map[model.PoolID]map[model.Key]struct{}    // which frontends lead to a pool
	serversByPool map[model.PoolID]map[lvs.ServerID]struct{} // which servers have its backends
	servers       map[lvs.ServerID]serverUse
	shared        map[entry]int // how many need an entry that may be needed by several
	marks         map[markID]uint32
	marked        map[uint32]markID
}

// serverUse is a virtual server's pool and how many frontends need it.
type serverUse struct {
	pool model.PoolID
	n    int
}

func newState(masquerade uint32) *state {
	return &state{
		masquerade: masquerade, table: model.NewTable(),
		fronts: map[model.PoolID]map[model.Key]struct{}{}, serversByPool: map[model.PoolID]map[lvs.ServerID]struct{}{},
		servers: map[lvs.ServerID]serverUse{}, shared: map[entry]int{},
		marks: map[markID]uint32{}, marked: map[uint32]markID{},
	}
}

// move makes want the state's table and tells what that changes in the kernel.
// Settings are not compared: after other settings, begin with a new state.
func (s *state) move(want *model.Table, changes *model.Changes) *plan {
	m := &move{state: s, want: want, plan: newPlan(want), shared: map[entry]int{}, servers: map[lvs.ServerID]serverUse{}}
	for _, c := range m.frontends(changes) {
		m.frontend(c)
	}
	for _, c := range changes.Pools {
		m.loopBack(c)
	}
	m.sharedEntries()
	m.changedServers()
	for _, c := range changes.Pools {
		m.pool(c)
	}
	s.table = want
	return m.plan
}

// move is one step from a table to the next.
type move struct {
	*state
	want    *model.Table
	plan    *plan
	shared  map[entry]int              // of the entries touched: the count before
	servers map[lvs.ServerID]serverUse // of the servers touched: the use before
}

// frontends are those whose footprint may differ: the changed ones, and those
// that lead to a pool that was or is empty.
func (m *move) frontends(changes *model.Changes) []model.FrontendChange {
	list := changes.Frontends
	var seen map[model.Key]bool
	for _, c := range changes.Pools {
		if c.Old == nil || c.New == nil || empty(c.Old) == empty(c.New) && (!empty(c.New) || c.Old.Empty == c.New.Empty) {
			continue // a pool that comes or goes does so with its frontends
		}
		if seen == nil {
			seen = map[model.Key]bool{}
			for _, f := range changes.Frontends {
				seen[f.Key()] = true
			}
			list = list[:len(list):len(list)]
		}
		for key := range m.fronts[c.ID()] {
			if !seen[key] {
				seen[key] = true
				list = append(list, model.FrontendChange{Old: m.table.Frontend(key), New: m.want.Frontend(key)})
			}
		}
	}
	return list
}

func empty(p *model.Pool) bool { return len(p.Backends) == 0 }

func (m *move) frontend(c model.FrontendChange) {
	before, after := m.footprint(m.table, c.Old), m.footprint(m.want, c.New)
	for e, old := range before.entries {
		if e.shared() {
			m.count(e, -1)
		} else if _, still := after.entries[e]; !still {
			m.plan.remove(e, old)
		}
	}
	for e, now := range after.entries {
		if e.shared() {
			m.count(e, +1)
		} else if old, was := before.entries[e]; !was || old != now {
			m.plan.put(e, now)
		}
	}
	for id, pool := range before.servers {
		m.use(id, pool, -1)
	}
	for id, pool := range after.servers {
		m.use(id, pool, +1)
	}
	if c.Old != nil {
		for _, r := range c.Old.Routes {
			forget(m.fronts, r.Pool, c.Old.Key)
		}
	}
	if c.New != nil {
		for _, r := range c.New.Routes {
			remember(m.fronts, r.Pool, c.New.Key)
		}
	}
}

func (m *move) loopBack(c model.PoolChange) {
	before, after := loopBack(c.Old), loopBack(c.New)
	for e := range before {
		if !after[e] {
			m.count(e, -1)
		}
	}
	for e := range after {
		if !before[e] {
			m.count(e, +1)
		}
	}
}

func (m *move) count(e entry, by int) {
	if _, touched := m.shared[e]; !touched {
		m.shared[e] = m.state.shared[e]
	}
	if m.state.shared[e] += by; m.state.shared[e] == 0 {
		delete(m.state.shared, e)
	}
}

func (m *move) sharedEntries() {
	for e, before := range m.shared {
		switch now := m.state.shared[e]; {
		case before == 0 && now > 0:
			m.plan.put(e, ipset.Mark{})
		case before > 0 && now == 0:
			m.plan.remove(e, ipset.Mark{})
		}
	}
}

func (m *move) use(id lvs.ServerID, pool model.PoolID, by int) {
	now := m.state.servers[id]
	if _, touched := m.servers[id]; !touched {
		m.servers[id] = now
	}
	now.n += by
	if by > 0 {
		now.pool = pool
	}
	m.state.servers[id] = now
}

// changedServers plans for servers that came, went or have another pool now.
func (m *move) changedServers() {
	for id, before := range m.servers {
		now := m.state.servers[id]
		if before.n > 0 && (now.n == 0 || now.pool != before.pool) {
			forget(m.serversByPool, before.pool, id)
		}
		if now.n > 0 {
			remember(m.serversByPool, now.pool, id)
		} else {
			delete(m.state.servers, id)
			m.release(id)
		}
		switch {
		case before.n == 0 && now.n > 0:
			m.plan.server(id).become(nil, m.want.Pool(now.pool))
		case before.n > 0 && now.n == 0:
			m.plan.server(id).del, m.plan.server(id).old = true, m.table.Pool(before.pool)
		case now.n > 0 && now.pool != before.pool:
			m.plan.server(id).become(m.table.Pool(before.pool), m.want.Pool(now.pool))
		}
	}
}

// pool plans for the servers that have the pool and had it before.
func (m *move) pool(c model.PoolChange) {
	if c.Old == nil || c.New == nil {
		return
	}
	for id := range m.serversByPool[c.ID()] {
		if _, planned := m.plan.servers[id]; !planned {
			m.plan.server(id).become(c.Old, c.New)
		}
	}
}

func (s *state) release(id lvs.ServerID) {
	if of, ok := s.marked[id.Mark]; ok {
		delete(s.marks, of)
		delete(s.marked, id.Mark)
	}
}

func remember[K1, K2 comparable](index map[K1]map[K2]struct{}, a K1, b K2) {
	if index[a] == nil {
		index[a] = map[K2]struct{}{}
	}
	index[a][b] = struct{}{}
}

func forget[K1, K2 comparable](index map[K1]map[K2]struct{}, a K1, b K2) {
	delete(index[a], b)
	if len(index[a]) == 0 {
		delete(index, a)
	}
}
