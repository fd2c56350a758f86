package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairway-net/fairway/model"
)

// forwardRules let through what has been masqueraded and what belongs to
// connections that were let through, whatever the policy of FORWARD is.
func (s *state) forwardRules() []string {
	mark := fmt.Sprintf("%#x", s.mark)
	return []string{
		"-m conntrack --ctstate INVALID -j " + invalidChain,
		fmt.Sprintf("%s -m mark --mark %s/%s -j ACCEPT", comment("kubernetes forwarding rules"), mark, mark),
		comment("kubernetes forwarding conntrack rule") + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
}

// maxNonPodBackends is how many backends outside the pod prefixes are listed.
const maxNonPodBackends = 64

// invalidRules drop packets of backends that conntrack can't tell the
// connection of. Translated back they are not, so a client that got them would
// reset its connection. Packets of anybody else pass: where routes are
// asymmetric, conntrack calls much INVALID that is none of ours.
func (s *state) invalidRules() []string {
	icmp := "icmp"
	if s.addrBits == 128 {
		icmp = "ipv6-icmp"
	}
	rules := []string{"-p " + icmp + " -j RETURN", "-p udp -j RETURN"}
	if len(s.nonPodBackends) > maxNonPodBackends {
		return append(rules, "-j DROP")
	}
	for _, p := range s.podPrefixes {
		rules = append(rules, rule{src: p, target: "DROP"}.String())
	}
	for _, a := range sortedAddrs(s.nonPodBackends) {
		rules = append(rules, rule{src: single(a), target: "DROP"}.String())
	}
	return rules
}

// countStrangers keeps count of backends outside the pod prefixes.
func (s *state) countStrangers(p *model.Pool, by int) {
	if p == nil {
		return
	}
	for _, list := range [][]model.Backend{p.Backends, p.Draining} {
		for _, b := range list {
			if slices.ContainsFunc(s.podPrefixes, func(prefix netip.Prefix) bool { return prefix.Contains(b.Addr) }) {
				continue
			}
			if s.nonPodBackends[b.Addr] += by; s.nonPodBackends[b.Addr] == 0 {
				delete(s.nonPodBackends, b.Addr)
			}
		}
	}
}

// jump is a rule in one of the kernel's chains.
type jump struct{ table, chain, rule string }

// jumps lead from the kernel's chains to ours, with kube-proxy's comments. They
// are put at the beginning of their chains, in this order.
func jumps() []jump {
	portals := comment("kubernetes service portals") + " -j " + servicesChain
	fresh := "-m conntrack --ctstate NEW "
	firewall := fresh + comment("kubernetes load balancer firewall") + " -j " + firewallChain
	external := fresh + comment("kubernetes externally-visible service portals") + " -j " + externalChain
	invalid := "-m conntrack --ctstate INVALID " + comment("kubernetes invalid packets of endpoints") + " -j " + invalidChain
	return []jump{
		{"nat", "PREROUTING", portals},
		{"nat", "OUTPUT", portals},
		{"nat", "POSTROUTING", comment("kubernetes postrouting rules") + " -j " + postroutingChain},
		{"nat", "INPUT", comment("kubernetes endpoints on this node") + " -j " + localMasqChain},
		{"filter", "INPUT", firewall},
		{"filter", "INPUT", external},
		{"filter", "INPUT", fresh + portals},
		{"filter", "INPUT", invalid},
		{"filter", "FORWARD", firewall},
		{"filter", "FORWARD", comment("kubernetes forwarding rules") + " -j " + forwardChain},
		{"filter", "FORWARD", fresh + portals},
		{"filter", "FORWARD", external},
		{"filter", "OUTPUT", firewall},
		{"filter", "OUTPUT", fresh + portals},
		{"filter", "OUTPUT", external},
		{"filter", "OUTPUT", invalid},
	}
}
