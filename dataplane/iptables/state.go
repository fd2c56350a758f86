package iptables

import (
	"hash/maphash"
	"net/netip"

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

	table          *model.Table
	fronts         map[model.Key]*front
	ports          map[portID]*port
	users          map[model.PoolID][]*front
	rendered       map[model.PoolID]rendered  // pools that have chains
	nodeAddrs      map[netip.Addr]int         // addresses with node ports, by number of them
	nonPodBackends map[netip.Addr]int         // backends outside the pod prefixes, likewise
	loopbacks      int                        // frontends on 127.0.0.0/8
	masks          [1 << model.NumOrigins]int // direct frontends by who is masqueraded

	services, nodePorts, nodeAddresses        *tree // table nat
	refusals, externals, firewall, exemptions *tree // table filter

	touchedPools    map[model.PoolID]bool
	touchedPorts    map[portID]bool
	chains          map[chainID]uint64 // fingerprints of what there is beside chains of pools, or will be when the delta is applied
	rules           map[string]int     // in chains, by table
	counterChains   *counterChains
	delta           delta
	there           map[chainID]uint64 // while the state is loaded: what the kernel has, or [asked] for chains that are to be
	deferredDeletes map[chainID]bool   // chains of table filter to be deleted in the last step
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
		fronts:          map[model.Key]*front{},
		ports:           map[portID]*port{},
		users:           map[model.PoolID][]*front{},
		rendered:        map[model.PoolID]rendered{},
		nodeAddrs:       map[netip.Addr]int{},
		nonPodBackends:  map[netip.Addr]int{},
		chains:          map[chainID]uint64{},
		rules:           map[string]int{},
		counterChains:   newCounterChains(),
		delta:           delta{},
		deferredDeletes: map[chainID]bool{},

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
	delete(s.deferredDeletes, id)
	was := s.chains[id]
	if sum := s.write(level, id, rules, was); sum != was {
		s.chains[id] = sum
		s.counterChains.wrote(id, rules)
	}
}

// asked is no chain's fingerprint.
const asked = 0

// write has a chain contain these rules, unless it does so by its fingerprint (0 if
// there is no such chain), and gives the new one.
func (s *state) write(level int, id chainID, rules []string, was uint64) uint64 {
	sum := fingerprint(rules)
	if sum == was {
		return sum
	}
	s.rules[id.table] += length(sum) - length(was)
	there, found := s.there[id]
	if found {
		s.there[id] = asked
	}
	if there == sum {
		delete(s.delta, id)
	} else {
		s.delta[id] = change{rules: rules, level: level}
	}
	return sum
}

// erase undoes write.
func (s *state) erase(id chainID, was uint64) {
	s.rules[id.table] -= length(was)
	s.delta[id] = change{delete: true}
}

// forget says that a chain is not needed any more. Chains of refusals may be
// referred to until the last step, see [state.change].
func (s *state) forget(table, name string) {
	id := chainID{table, name}
	if _, there := s.chains[id]; !there {
		return
	}
	if table == "filter" {
		s.deferredDeletes[id] = true
		return
	}
	s.drop(id)
}

func (s *state) drop(id chainID) {
	s.erase(id, s.chains[id])
	delete(s.chains, id)
	s.counterChains.wrote(id, nil)
}

// forgetLate deletes what was kept for the last step.
func (s *state) forgetLate() {
	for id := range s.deferredDeletes {
		s.drop(id)
	}
	clear(s.deferredDeletes)
}

// step returns the changes since the last step, and begins the next one.
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
