package iptables

import (
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// index puts a frontend that leads somewhere into the trees of table nat.
func (s *state) index(f *front) {
	if f.Addr.IsLoopback() {
		s.loopbacks++
	}
	if f.direct() {
		s.masks[f.mask()]++
	}
	if f.FrontendType != model.NodePort {
		s.services.put(&leaf{key: makeKey(s.addrBits, f.Key), fronts: []*front{f}})
		return
	}
	k := makeKey(0, f.Key)
	l := &leaf{key: k}
	if before := s.nodePorts.get(k); before != nil {
		l.fronts = slices.Clone(before.fronts)
	}
	i, _ := slices.BinarySearchFunc(l.fronts, f.Addr, compareAddr)
	l.fronts = slices.Insert(l.fronts, i, f)
	s.nodePorts.put(l)
	if s.nodeAddrs[f.Addr]++; s.nodeAddrs[f.Addr] == 1 {
		s.nodeAddresses.put(&leaf{key: makeKey(s.addrBits, model.Key{Addr: f.Addr})})
		s.nodePorts.touchAll()
	}
}

// unindex undoes index.
func (s *state) unindex(f *front) {
	if f.Addr.IsLoopback() {
		s.loopbacks--
	}
	if f.direct() {
		s.masks[f.mask()]--
	}
	if f.FrontendType != model.NodePort {
		s.services.drop(makeKey(s.addrBits, f.Key))
		return
	}
	k := makeKey(0, f.Key)
	l := &leaf{key: k, fronts: slices.Clone(s.nodePorts.get(k).fronts)}
	i, _ := slices.BinarySearchFunc(l.fronts, f.Addr, compareAddr)
	if l.fronts = slices.Delete(l.fronts, i, i+1); len(l.fronts) == 0 {
		s.nodePorts.drop(k)
	} else {
		s.nodePorts.put(l)
	}
	if s.nodeAddrs[f.Addr]--; s.nodeAddrs[f.Addr] == 0 {
		delete(s.nodeAddrs, f.Addr)
		s.nodeAddresses.drop(makeKey(s.addrBits, model.Key{Addr: f.Addr}))
		s.nodePorts.touchAll()
	}
}

// loopback are the addresses of which 127.0.0.1 is one.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

func compareAddr(f *front, a netip.Addr) int { return f.Addr.Compare(a) }

// serviceRules lead a frontend's packets to its chain.
func (s *state) serviceRules(l *leaf, _ int) []string {
	f := l.fronts[0]
	return []string{rule{
		dst: single(f.Addr), proto: f.Proto, dport: f.Port,
		comment: f.Name + " " + f.FrontendType.String(), target: s.ports[f.port()].target(f),
	}.String()}
}

// nodePortRules lead the packets of one port to its chain: by one rule, or two
// where loopback addresses have node ports, if the port is the same at every
// address that has any, as nearly always.
func (s *state) nodePortRules(l *leaf, _ int) []string {
	first := l.fronts[0]
	target := s.ports[first.port()].target(first)
	everywhere := len(l.fronts) == len(s.nodeAddrs) && !slices.ContainsFunc(l.fronts, func(f *front) bool {
		return f.Name != first.Name || s.ports[f.port()].target(f) != target
	})
	if everywhere {
		general := rule{proto: first.Proto, dport: first.Port, comment: first.Name, target: target}
		if s.loopbacks == 0 {
			return []string{general.String()}
		}
		local := general // counts what kube-proxy counts there
		local.dst = loopback
		return []string{local.String(), general.String()}
	}
	var rules []string
	for _, f := range l.fronts {
		rules = append(rules, rule{
			dst: single(f.Addr), proto: f.Proto, dport: f.Port,
			comment: f.Name, target: s.ports[f.port()].target(f),
		}.String())
	}
	return rules
}

// maxListedAddrs is how many node addresses stand in KUBE-SERVICES itself.
const maxListedAddrs = 8

const nodePortsComment = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"

func (s *state) nodeAddrRules(l *leaf, _ int) []string {
	return []string{rule{dst: l.key.prefix(s.addrBits, s.addrBits), comment: nodePortsComment, target: nodePortsChain}.String()}
}

// lastServicesRules are those at the end of KUBE-SERVICES. A packet to a node
// port passes all cluster IPs, and no packet to anything else passes a node
// port.
func (s *state) lastServicesRules() []string {
	if len(s.nodeAddrs) > maxListedAddrs {
		return []string{rule{target: nodeAddrsChain}.String()}
	}
	var rules []string
	for _, a := range sortedAddrs(s.nodeAddrs) {
		rules = append(rules, rule{dst: single(a), comment: nodePortsComment, target: nodePortsChain}.String())
	}
	return rules
}

func sortedAddrs(set map[netip.Addr]int) []netip.Addr {
	var addrs []netip.Addr
	for a := range set {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// flushNAT makes the touched chains of table nat anew.
func (s *state) flushNAT() {
	s.emitMasquerading()
	for id := range s.touchedPools {
		s.emitPool(id)
	}
	s.touchedPools = map[model.PoolID]bool{} // clearing costs what it ever held
	for id := range s.touchedPorts {
		if p := s.ports[id]; p != nil {
			s.emitPort(p)
		}
	}
	s.touchedPorts = map[portID]bool{}
	s.flushTree(s.services, s.lastServicesRules())
	s.flushTree(s.nodePorts, nil)
	s.flushNodeAddrs()
}

// flushNodeAddrs has chains for many node addresses only.
func (s *state) flushNodeAddrs() {
	if len(s.nodeAddrs) > maxListedAddrs {
		if _, there := s.chains[chainID{"nat", nodeAddrsChain}]; !there {
			s.nodeAddresses.touchAll()
		}
		s.flushTree(s.nodeAddresses, nil)
		return
	}
	s.nodeAddresses.touchAll()
	for p := range s.nodeAddresses.touched {
		s.forget("nat", s.nodeAddresses.name(p))
	}
	s.nodeAddresses.touched = nil
	s.forget("nat", nodeAddrsChain)
}

// flushTree makes the touched chains of a tree anew, and its top with further
// rules behind.
func (s *state) flushTree(t *tree, last []string) {
	for p := range t.touched {
		if n := t.find(p); n != nil {
			s.emit(t.level-p.bit, t.table, t.name(p), t.content(n))
		} else {
			s.forget(t.table, t.name(p))
		}
	}
	t.touched = nil
	s.emit(t.level, t.table, t.root, append(t.content(t.top), last...))
}
