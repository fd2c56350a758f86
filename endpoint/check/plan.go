package check

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// plan starts and ends the checks of a Service so that they are those that this
// node is to run, and returns what is known of their endpoints.
func (c *Checker) plan(key types.NamespacedName) (findings []Finding, problems []error) {
	local, err := c.config.Addresses()
	if err != nil {
		local, problems = nil, append(problems, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, asks := c.input.services[key]
	wanted := map[netip.AddrPort]bool{}
	problems = append(problems, s.problems...)
	if asks && s.wish.Spec != nil {
		for name := range c.input.of[key] {
			problems = append(problems, c.planSlice(c.input.slices[name], s.wish.Spec, local, wanted)...)
		}
	}
	c.change(key, s.wish.Spec, wanted)
	for addr, f := range c.planned[key] {
		findings = append(findings, Finding{Addr: addr, Verdict: f.verdict})
	}
	return findings, problems
}

// planSlice adds the endpoints of a slice that this node is to check.
func (c *Checker) planSlice(s slice, spec *Spec, local []netip.Addr, wanted map[netip.AddrPort]bool) (problems []error) {
	if s.problem != nil {
		problems = append(problems, s.problem)
	}
	port, err := PortOf(spec, s.ports)
	if err != nil {
		return append(problems, err)
	}
	for _, e := range s.endpoints {
		if !slices.Contains(c.input.index.Checkers(e.addr, e.node), c.config.Node) {
			continue
		}
		// An address of this machine that it isn't known by (a bridge's, say)
		// means another machine to every other node.
		if slices.Contains(local, e.addr) && !c.input.index.Owns(c.config.Node, e.addr) {
			if len(c.input.nodes[c.config.Node].Addresses) == 0 {
				continue // the Node object is new, and its addresses are on their way
			}
			problems = append(problems, fmt.Errorf("endpoint address %s: is local to node %s, but not an address of its Node object; it is not checked", e.addr, c.config.Node))
			continue
		}
		wanted[netip.AddrPortFrom(e.addr, port)] = true
	}
	return problems
}

// change starts and ends checks. What an agent before this one has reported of an
// endpoint is where its check begins.
func (c *Checker) change(key types.NamespacedName, spec *Spec, wanted map[netip.AddrPort]bool) {
	now := c.planned[key]
	for addr := range now {
		if !wanted[addr] {
			c.checks.Remove(Endpoint{Service: key, Addr: addr})
			delete(now, addr)
		}
	}
	if now == nil && len(wanted) > 0 {
		now = map[netip.AddrPort]finding{}
		c.planned[key] = now
	}
	var before map[netip.AddrPort]Verdict
	for addr := range wanted {
		f, known := now[addr]
		if known && f.target.Spec.Equal(*spec) {
			continue
		}
		if !known {
			if before == nil {
				before = c.reported(key)
			}
			f.verdict = before[addr]
		}
		f.target = Target{Addr: addr, Spec: spec, Tenant: Tenant{Namespace: key.Namespace, Service: key.Name}}
		now[addr] = f
		c.checks.Set(Endpoint{Service: key, Addr: addr}, f.target, f.verdict.Health)
	}
	if len(now) == 0 {
		delete(c.planned, key)
	}
}

// reported is what this node's reports say of a Service's endpoints.
func (c *Checker) reported(key types.NamespacedName) map[netip.AddrPort]Verdict {
	known := map[netip.AddrPort]Verdict{}
	for _, s := range c.input.reports[key] {
		for _, f := range Findings(s) {
			known[f.Addr] = f.Verdict
		}
	}
	return known
}
