package announce

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// Served are the Services of an address, by "namespace/name", sorted.
type Served struct {
	// Ready ones have an endpoint for new connections from outside that come to
	// this node, Idle ones have none: under externalTrafficPolicy: Local, none
	// on this node.
	Ready, Idle []string
	// Local is the number of endpoints on this node, where only these are used
	// (externalTrafficPolicy: Local); 0 where all are.
	Local int
	// ByNode says that each node uses its own endpoints only: when the last one of this node
	// has gone, other nodes may have some.
	ByNode bool
	// ClusterIP says that the address is a cluster IP, ExternalIP that it is one that
	// a Service names itself.
	ClusterIP, ExternalIP bool
	// Anywhere says that any node goes on with connections to the address, if the data plane
	// can (model.Route.Stable).
	Anywhere bool
}

// Tracker knows which load balancer addresses and external IPs a table has, and
// cluster IPs if these are asked for. An update costs what the change costs. The zero value is empty.
type Tracker struct {
	// ClusterIPs are asked for. Whoever changes it begins with another tracker.
	ClusterIPs bool

	table     *model.Table
	frontends map[netip.Addr]map[model.Key]*model.Frontend
	byPool    map[model.PoolID]map[model.Key]netip.Addr
	served    map[netip.Addr]Served
}

// Update takes in the next table and reports whether anything is different.
func (t *Tracker) Update(table *model.Table) bool {
	if t.frontends == nil {
		t.frontends = map[netip.Addr]map[model.Key]*model.Frontend{}
		t.byPool = map[model.PoolID]map[model.Key]netip.Addr{}
		t.served = map[netip.Addr]Served{}
	}
	changes := table.Since(t.table)
	t.table = table
	touched := map[netip.Addr]bool{}
	for _, c := range changes.Frontends {
		if c.Old != nil && t.isAnnounced(c.Old) {
			t.remove(c.Old)
			touched[c.Old.Addr] = true
		}
		if c.New != nil && t.isAnnounced(c.New) {
			t.add(c.New)
			touched[c.New.Addr] = true
		}
	}
	for _, c := range changes.Pools {
		for _, a := range t.byPool[c.ID()] {
			touched[a] = true
		}
	}
	changed := false
	for a := range touched {
		changed = t.judge(a) || changed
	}
	return changed
}

// Served returns what is in force. It is the caller's.
func (t *Tracker) Served() map[netip.Addr]Served { return maps.Clone(t.served) }

// Has reports whether an address is in the table.
func (t *Tracker) Has(a netip.Addr) bool { return len(t.frontends[a]) > 0 }

// Frontends lists those of an address.
func (t *Tracker) Frontends(a netip.Addr) []*model.Frontend {
	return slices.Collect(maps.Values(t.frontends[a]))
}

// Table returns the last table; nil if there was none.
func (t *Tracker) Table() *model.Table { return t.table }

func (t *Tracker) isAnnounced(f *model.Frontend) bool {
	return t.ClusterIPs && f.FrontendType == model.ClusterIP || f.FrontendType == model.LoadBalancerIP || f.FrontendType == model.ExternalIP
}

func (t *Tracker) add(f *model.Frontend) {
	if t.frontends[f.Addr] == nil {
		t.frontends[f.Addr] = map[model.Key]*model.Frontend{}
	}
	t.frontends[f.Addr][f.Key] = f
	pool := f.Routes[model.FromOutside].Pool
	if t.byPool[pool] == nil {
		t.byPool[pool] = map[model.Key]netip.Addr{}
	}
	t.byPool[pool][f.Key] = f.Addr
}

func (t *Tracker) remove(f *model.Frontend) {
	delete(t.frontends[f.Addr], f.Key)
	if len(t.frontends[f.Addr]) == 0 {
		delete(t.frontends, f.Addr)
	}
	pool := f.Routes[model.FromOutside].Pool
	delete(t.byPool[pool], f.Key)
	if len(t.byPool[pool]) == 0 {
		delete(t.byPool, pool)
	}
}

// judge finds out anew what an address serves and reports whether that changed.
func (t *Tracker) judge(a netip.Addr) bool {
	ready := map[string]bool{} // by Service, whether any of its ports has endpoints
	next := Served{Anywhere: true}
	for _, f := range t.frontends[a] {
		name := model.ServiceOf(f.Name)
		route := f.Routes[model.FromOutside]
		pool := t.table.Pool(route.Pool)
		if pool == nil {
			continue
		}
		ready[name] = ready[name] || len(pool.Backends) > 0
		next.Anywhere = next.Anywhere && route.Stable
		if route.Pool.Local || !route.Masquerade && f.FrontendType != model.ClusterIP { // as the policy Local has it
			next.Local, next.ByNode = max(next.Local, len(pool.Backends)), true
		}
		next.ClusterIP = next.ClusterIP || f.FrontendType == model.ClusterIP
		next.ExternalIP = next.ExternalIP || f.FrontendType == model.ExternalIP
	}
	for _, name := range slices.Sorted(maps.Keys(ready)) {
		if ready[name] {
			next.Ready = append(next.Ready, name)
		} else {
			next.Idle = append(next.Idle, name)
		}
	}
	last, had := t.served[a]
	if len(ready) == 0 {
		delete(t.served, a)
		return had
	}
	t.served[a] = next
	return !had || last.Local != next.Local || last.ByNode != next.ByNode || last.Anywhere != next.Anywhere || last.ClusterIP != next.ClusterIP || last.ExternalIP != next.ExternalIP || !slices.Equal(last.Ready, next.Ready) || !slices.Equal(last.Idle, next.Idle)
}

// Both is what is in force and is to stay: what the next table no longer has, or
// has no endpoints for, is withdrawn before the data plane forgets it.
func Both(inForce, next map[netip.Addr]Served) map[netip.Addr]Served {
	both := map[netip.Addr]Served{}
	for a, s := range inForce {
		n, ok := next[a]
		if !ok {
			continue
		}
		stays := Served{Local: min(s.Local, n.Local), ByNode: s.ByNode || n.ByNode, Anywhere: s.Anywhere && n.Anywhere, ClusterIP: n.ClusterIP, ExternalIP: n.ExternalIP}
		for _, name := range s.Ready {
			if slices.Contains(n.Ready, name) {
				stays.Ready = append(stays.Ready, name)
			} else {
				stays.Idle = append(stays.Idle, name)
			}
		}
		stays.Idle = append(stays.Idle, s.Idle...)
		both[a] = stays
	}
	return both
}
