package iptables

import (
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/model"
)

// state is what one family's rules shall be: an index of the table by what the
// chains are made of, and a fingerprint of each chain. A change notes which
// chains it may touch; flushing makes these anew and hands out those whose
// fingerprint is another.
type state struct {
	family      iptables.Family
	addrBits    int
	mark        uint32
	limits      limits
	settings    *model.Settings
	podPrefixes []netip.Prefix
	large       bool // rules of backends have no comments

	table     *model.Table
	fronts    map[model.Key]*front
	ports     map[portID]*port
	users     map[model.PoolID][]*front
	rendered  map[model.PoolID]*model.Pool // pools that have chains
	nodeAddrs map[netip.Addr]int           // addresses with node ports, by number of them
	strangers map[netip.Addr]int           // backends outside the pod prefixes, likewise
	loopbacks int                          // frontends on 127.0.0.0/8
	masks     [1 << model.NumOrigins]int   // direct frontends by who is masqueraded

	services, nodePorts, nodeAddresses        *tree // table nat
	refusals, externals, firewall, exemptions *tree // table filter

	touchedPools map[model.PoolID]bool
	touchedPorts map[portID]bool
	chains       map[chainID]uint64 // fingerprints of what there is, or will be when the delta is applied
	rules        map[string]int     // in chains, by table
	telling      *telling
	delta        delta
	there        map[chainID]uint64 // while the state is loaded: chains that may stay as they are
	late         map[chainID]bool   // chains of table filter to be deleted in the last step
}

// chainID names a chain of one family.
type chainID struct{ table, name string }

// delta is a step: the chains to be written and those to be deleted.
type delta map[chainID]change

type change struct {
	rules  []string
	delete bool
	level  int // chains refer to those of lower levels only
}

// The levels of chains.
const (
	levelHelper   = iota
	levelBackend  // KUBE-SEP
	levelPool     // KUBE-SVC, KUBE-SVL
	levelEntry    // KUBE-EXT
	levelSources  // KUBE-FW
	levelDispatch // chains of a tree are below its top by the bits they know
	levelPorts    = levelDispatch + 200
	levelTop      = levelPorts + 200
)

func newState(f iptables.Family, mark uint32, settings *model.Settings) *state {
	s := &state{
		family: f, addrBits: 32, mark: mark, settings: settings,
		fronts:    map[model.Key]*front{},
		ports:     map[portID]*port{},
		users:     map[model.PoolID][]*front{},
		rendered:  map[model.PoolID]*model.Pool{},
		nodeAddrs: map[netip.Addr]int{},
		strangers: map[netip.Addr]int{},
		chains:    map[chainID]uint64{},
		rules:     map[string]int{},
		telling:   newTelling(),
		delta:     delta{},
		late:      map[chainID]bool{},

		touchedPools: map[model.PoolID]bool{},
		touchedPorts: map[portID]bool{},
	}
	if f == iptables.IPv6 {
		s.addrBits = 128
	}
	for _, p := range settings.Pods.Prefixes {
		if s.ours(p.Addr()) {
			s.podPrefixes = append(s.podPrefixes, p)
		}
	}
	s.makeTrees()
	return s
}

// ours reports whether an address is of the state's family.
func (s *state) ours(a netip.Addr) bool { return a.Is6() == (s.family == iptables.IPv6) }

func (s *state) makeTrees() {
	s.services = &tree{table: "nat", level: levelTop, root: servicesChain, branch: dispatchChain, addrBits: s.addrBits, verb: "-j", rules: s.serviceRules}
	s.nodePorts = &tree{table: "nat", level: levelPorts, root: nodePortsChain, branch: portRangeChain, verb: "-j", rules: s.nodePortRules}
	s.nodeAddresses = &tree{table: "nat", level: levelTop - 1, root: nodeAddrsChain, branch: nodeAddrChain, addrBits: s.addrBits, verb: "-j", rules: s.nodeAddrRules}
	s.refusals = &tree{table: "filter", level: levelTop, root: servicesChain, branch: refusalChain, addrBits: s.addrBits, verb: "-j", rules: s.refusalRules}
	s.externals = &tree{table: "filter", level: levelTop, root: externalChain, branch: externalsChain, addrBits: s.addrBits, verb: "-j", rules: s.refusalRules}
	s.firewall = &tree{table: "filter", level: levelTop, root: firewallChain, branch: guardChain, addrBits: s.addrBits, verb: "-j", rules: s.firewallRules}
	s.exemptions = &tree{table: "filter", level: levelTop - 1, root: reservedChain, branch: exemptChain, addrBits: s.addrBits, verb: "-g", rules: s.exemptRules, tail: s.refuseAll()}
	for _, a := range s.settings.Exempt {
		if s.ours(a) {
			s.exemptions.put(&leaf{key: makeKey(s.addrBits, model.Key{Addr: a})})
		}
	}
}

func (s *state) trees() []*tree {
	return []*tree{s.services, s.nodePorts, s.nodeAddresses, s.refusals, s.externals, s.firewall, s.exemptions}
}

// emit says what a chain shall contain.
func (s *state) emit(level int, table, name string, rules []string) {
	id := chainID{table, name}
	delete(s.late, id)
	sum := fingerprint(rules)
	if s.chains[id] == sum {
		return
	}
	s.rules[table] += length(sum) - length(s.chains[id])
	s.chains[id] = sum
	s.telling.wrote(id, rules)
	if s.there[id] == sum {
		delete(s.delta, id)
		return
	}
	s.delta[id] = change{rules: rules, level: level}
}

// forget says that a chain is not needed any more. Chains of refusals may be
// referred to until the last step, see [state.change].
func (s *state) forget(table, name string) {
	id := chainID{table, name}
	if _, there := s.chains[id]; !there {
		return
	}
	if table == "filter" {
		s.late[id] = true
		return
	}
	s.drop(id)
}

func (s *state) drop(id chainID) {
	s.rules[id.table] -= length(s.chains[id])
	delete(s.chains, id)
	s.delta[id] = change{delete: true}
	s.telling.wrote(id, nil)
}

// forgetLate deletes what was kept for the last step.
func (s *state) forgetLate() {
	for id := range s.late {
		s.drop(id)
	}
	clear(s.late)
}

// step hands out what there is to do since the last step.
func (s *state) step() delta {
	d := s.delta
	s.delta = delta{}
	return d
}

var fingerprintSeed = maphash.MakeSeed()

// fingerprint tells contents of chains apart, and how many rules they have; it is
// never 0.
func fingerprint(rules []string) uint64 {
	var h maphash.Hash
	h.SetSeed(fingerprintSeed)
	for _, r := range rules {
		h.WriteString(r)
		h.WriteByte('\n')
	}
	n := min(len(rules), 1<<lengthBits-1)
	return h.Sum64()&^(1<<lengthBits-1) | 1<<lengthBits | uint64(n)
}

// load fills an empty state with a whole table.
func (s *state) load(t *model.Table) {
	s.table, s.large = t, s.isLarge(t)
	for _, tree := range s.trees() {
		tree.bulk = true
	}
	for f := range t.Frontends() {
		if s.wants(f) {
			s.addFront(f)
			s.refuse(s.fronts[f.Key])
		}
	}
	for _, tree := range s.trees() {
		tree.bulk = false
		tree.touchAll()
	}
	s.flushNAT()
	s.flushFilter()
	s.forgetLate()
}

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
		s.file(f)
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
		s.unfile(f)
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
