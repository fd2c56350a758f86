package iptables

import (
	"fmt"

	"github.com/fairway-net/fairway/model"
)

// emitPort makes the chains that a Service port's frontends share.
func (s *state) emitPort(p *port) {
	for content, c := range p.entries {
		s.emit(levelEntry, "nat", p.entries.name(entryChain, p.id, content), s.entryRules(c.front))
	}
	for content, c := range p.sources {
		name := p.sources.name(sourcesChain, p.id, content)
		if c.front.forwards() {
			s.emit(levelSources, "nat", name, s.sourcesRules(p, c.front))
		} else {
			s.forget("nat", name)
		}
		if c.front.refuses() {
			s.emit(levelSources, "filter", name, s.guardRules(c.front))
		} else {
			s.forget("filter", name)
		}
	}
}

// entryRules decide by a packet's origin: where to, and whether masqueraded.
func (s *state) entryRules(f *front) []string {
	if f.same(model.FromNode, model.FromOutside) && (f.same(model.FromPod, model.FromOutside) || len(s.conditions(model.FromPod)) == 0) {
		return s.entryRulesFor(f, model.FromOutside, "masquerade traffic for %s external destinations", "")
	}
	rules := s.entryRulesFor(f, model.FromNode, "masquerade LOCAL traffic for %s external destinations", "route LOCAL traffic for %s external destinations")
	if !f.same(model.FromPod, model.FromOutside) {
		rules = append(rules, s.entryRulesFor(f, model.FromPod, "masquerade pod traffic for %s external destinations", "pod traffic for %s external destinations")...)
	}
	return append(rules, s.entryRulesFor(f, model.FromOutside, "masquerade traffic for %s external destinations", "")...)
}

// entryRulesFor are the rules for one origin, given those before it.
func (s *state) entryRulesFor(f *front, o model.Origin, masquerade, route string) []string {
	var rules []string
	for _, r := range s.conditions(o) {
		if f.verdicts[o] != forward {
			if o != model.FromOutside { // the last: falls off the end anyway
				r.target = "RETURN"
				rules = append(rules, r.String())
			}
			continue
		}
		if f.Routes[o].Masquerade {
			r.comment, r.target = fmt.Sprintf(masquerade, f.Name), markMasqChain
			rules = append(rules, r.String())
		}
		r.comment, r.target = "", poolName(f.Routes[o].Pool)
		if route != "" {
			r.comment = fmt.Sprintf(route, f.Name)
		}
		rules = append(rules, r.String())
	}
	return rules
}

// sourcesRules let allowed sources on to where the frontend leads.
func (s *state) sourcesRules(p *port, f *front) []string {
	var rules []string
	for _, src := range f.Sources {
		if !s.ours(src.Addr()) {
			continue
		}
		rules = append(rules, rule{src: src, comment: f.Name + " " + model.LoadBalancerIP.String(), target: p.allowed(f)}.String())
	}
	return append(rules, rule{comment: fmt.Sprintf("other traffic to %s will be dropped by %s", f.Name, firewallChain)}.String())
}

// allowed is where a frontend leads those whom it lets in.
func (p *port) allowed(f *front) string {
	return p.entries.name(entryChain, p.id, f.entry())
}

// guardRules drop sources that aren't allowed, where some of those that are
// will be refused later.
func (s *state) guardRules(f *front) []string {
	var rules []string
	for _, src := range f.Sources {
		if s.ours(src.Addr()) {
			rules = append(rules, rule{src: src, comment: f.Name + " " + model.LoadBalancerIP.String(), target: "RETURN"}.String())
		}
	}
	return append(rules, rule{comment: f.Name + " traffic from other sources", target: "DROP"}.String())
}
