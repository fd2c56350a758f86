package iptables

import (
	"slices"

	"github.com/fairway-net/fairway/model"
)

// Packets that table nat has translated have another destination by the time
// they pass table filter. So what is here catches the rest: those of origins
// that are refused, and of sources that aren't let in.

// refuse puts what a frontend refuses into the trees of table filter.
func (s *state) refuse(f *front) {
	l := &leaf{key: makeKey(s.addrBits, f.Key), fronts: []*front{f}}
	if f.refuses() {
		s.refusalTree(f).put(l)
	}
	if f.Sources != nil {
		s.firewall.put(l)
	}
}

// unrefuse takes out what a frontend (its earlier self, if it is still there)
// refuses no more.
func (s *state) unrefuse(f *front) {
	k := makeKey(s.addrBits, f.Key)
	now := s.fronts[f.Key]
	if now == nil || !now.refuses() || s.refusalTree(now) != s.refusalTree(f) {
		s.refusalTree(f).drop(k)
	}
	if now == nil || now.Sources == nil {
		s.firewall.drop(k)
	}
}

func (s *state) refusalTree(f *front) *tree {
	if f.FrontendType == model.ClusterIP {
		return s.refusals
	}
	return s.externals
}

// refusalRules answer the origins that have no backend.
func (s *state) refusalRules(l *leaf, _ int) []string {
	f := l.fronts[0]
	refused := slices.DeleteFunc(slices.Clone(origins), func(o model.Origin) bool { return f.verdicts[o] == forward })
	alike := !slices.ContainsFunc(refused, func(o model.Origin) bool { return f.verdicts[o] != f.verdicts[refused[0]] })
	if alike {
		return []string{s.refusal(f, refused[len(refused)-1], rule{})}
	}
	var rules []string
	for _, o := range refused {
		for _, condition := range s.conditions(o) {
			rules = append(rules, s.refusal(f, o, condition))
		}
	}
	return rules
}

func (s *state) refusal(f *front, o model.Origin, r rule) string {
	r.dst, r.proto, r.dport = single(f.Addr), f.Proto, f.Port
	r.comment = f.Name + " has no endpoints"
	if f.Routes[o].Pool.Local {
		r.comment = f.Name + " has no local endpoints"
	}
	r.target = "DROP"
	if f.verdicts[o] == reject {
		r.target = s.rejection(f.Proto)
	}
	return r.String()
}

// rejection is the answer at once: a RST where the protocol has one, because a
// client may take an ICMP error for a passing one and try again (RFC 1122,
// 4.2.3.9; Linux does so for IPv6).
func (s *state) rejection(proto model.Protocol) string {
	switch {
	case proto == model.TCP:
		return "REJECT --reject-with tcp-reset"
	case s.addrBits == 128:
		return "REJECT --reject-with icmp6-port-unreachable"
	}
	return "REJECT --reject-with icmp-port-unreachable"
}

// refuseAll answers whatever comes.
func (s *state) refuseAll() []string {
	return []string{
		rule{proto: model.TCP, target: s.rejection(model.TCP)}.String(),
		rule{target: s.rejection(model.UDP)}.String(),
	}
}

// firewallRules stop sources that aren't allowed.
func (s *state) firewallRules(l *leaf, _ int) []string {
	f := l.fronts[0]
	r := rule{dst: single(f.Addr), proto: f.Proto, dport: f.Port, target: "DROP"}
	p := s.ports[f.port()]
	if p == nil || p.sources[f.sources()] == nil { // on its way out
		r.comment = f.Name + " traffic not accepted"
		return []string{r.String()}
	}
	name := p.sources.name(sourcesChain, p.id, f.sources())
	r.comment = f.Name + " traffic not accepted by " + name
	if f.refuses() { // some that are let in arrive here as well
		r.target = name
	}
	return []string{r.String()}
}

func (s *state) exemptRules(l *leaf, _ int) []string {
	return []string{rule{dst: l.key.prefix(s.addrBits, s.addrBits), target: "RETURN"}.String()}
}

// lastRefusals are those at the end of KUBE-SERVICES in table filter: nothing
// goes out to a Service address that nobody serves.
func (s *state) lastRefusals() []string {
	var rules []string
	for _, p := range s.settings.Reserved {
		if s.ours(p.Addr()) {
			rules = append(rules, rule{dst: p, comment: "kubernetes unserved service addresses", target: reservedChain}.String())
		}
	}
	return rules
}

// flushFilter makes the touched chains of table filter anew.
func (s *state) flushFilter() {
	s.emit(levelTop, "filter", forwardChain, s.forwardRules())
	s.emit(levelHelper, "filter", invalidChain, s.invalidRules())
	s.flushTree(s.exemptions, nil)
	s.flushTree(s.refusals, s.lastRefusals())
	s.flushTree(s.externals, nil)
	s.flushTree(s.firewall, s.localnetRules())
}

// localnetRules keep others off 127.0.0.0/8 while node ports on it are served,
// for which packets to it have to be routed.
func (s *state) localnetRules() []string {
	if s.loopbacks == 0 {
		return nil
	}
	return []string{"! -s 127.0.0.0/8 -d 127.0.0.0/8 " + comment("block incoming localnet connections") + " -j DROP"}
}
