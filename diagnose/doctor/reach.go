package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
)

// mostProbed is how many endpoints are tried.
const mostProbed = 16

// checkEndpoints finds FW103, FW105, FW118 and FW129: endpoints that refuse connections or
// can't be reached, from each node that packets are sent from. All are tried at once.
func checkEndpoints(ctx context.Context, e *Evidence) []Finding {
	nodes := e.probing()
	found := make([][]Finding, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { found[i] = e.endpointsFrom(ctx, n) })
	}
	group.Wait()
	var list []Finding
	for _, f := range slices.Concat(found...) {
		if !slices.ContainsFunc(list, f.same) { // several nodes find that one refuses
			list = append(list, f)
		}
	}
	return list
}

// endpointsFrom tries the endpoints from one node.
func (e *Evidence) endpointsFrom(ctx context.Context, n *Node) []Finding {
	targets := e.tcpEndpoints()
	results := make([]string, len(targets))
	var group sync.WaitGroup
	for i, to := range targets {
		group.Go(func() { results[i] = n.Probe.Connect(ctx, to) })
	}
	group.Wait()
	var list []Finding
	silent := map[string][]string{} // endpoints by node and address family
	asked := map[string]int{}
	for i, to := range targets {
		key := e.nodeOf(to.Addr()) + "/" + map[bool]string{false: "IPv4", true: "IPv6"}[to.Addr().Is6()]
		asked[key]++
		by, prohibited := strings.CutPrefix(results[i], Prohibited)
		switch {
		case results[i] == "ok":
		case results[i] == "refused":
			list = append(list, e.refused(to))
		case prohibited:
			list = append(list, e.prohibited(n, to, by))
		case results[i] == "no route to host", results[i] == "network is unreachable":
			list = append(list, Finding{Code: NoWayToNode, Grade: Proved, What: fmt.Sprintf("%s has no way to %s: %s", n, to, results[i])})
		default:
			silent[key] = append(silent[key], fmt.Sprintf("%s (%s)", to, results[i]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(silent)) {
		node, family, _ := strings.Cut(key, "/")
		list = append(list, e.silent(n, node, family, silent[key], len(silent[key]) == asked[key])...)
	}
	return list
}

// prohibited says whose firewall lets nobody through to an endpoint.
func (e *Evidence) prohibited(n *Node, to netip.AddrPort, by string) Finding {
	f := Finding{Code: ForeignFirewall, Grade: Proved, What: fmt.Sprintf("a firewall at %s lets nothing from %s through to %s", by, n, to)}
	for _, at := range e.looked() {
		chains := at.foreignForwarding()
		if !e.hasAddress(at, by) || len(chains) == 0 {
			continue
		}
		f.What += fmt.Sprintf(": %s has rules of %s", at, join(tables(chains)))
		f.Fix = e.letThrough(chains)
		break
	}
	return f
}

// hasAddress reports whether a node has an address: one of its Node's, or the first ones of its
// pods' ranges, which bridges of pods have.
func (e *Evidence) hasAddress(n *Node, address string) bool {
	a, err := netip.ParseAddr(address)
	if err != nil || e.Objects == nil {
		return false
	}
	for _, node := range e.Objects.Nodes {
		if node.Name != n.Name {
			continue
		}
		for _, own := range node.Status.Addresses {
			if own.Address == address {
				return true
			}
		}
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Contains(a) {
				return true
			}
		}
	}
	return n.Name == e.nodeOf(a)
}

// nodeOf is the node of an endpoint; "" if that isn't known.
func (e *Evidence) nodeOf(a netip.Addr) string {
	for _, one := range e.Report.Endpoints {
		if one.Addr == a {
			return one.Node
		}
	}
	return ""
}

// silent says what it means that endpoints of a node don't answer. A machine that is no node needn't
// reach them, and network policies may be what keeps this one away. Else clients of this node
// don't reach them either; if none of another node's answers, the way there is broken.
func (e *Evidence) silent(n *Node, node, family string, endpoints []string, all bool) (list []Finding) {
	if n.Name != "" && node != "" && node != n.Name && all && !e.hasPolicy() {
		return []Finding{{Code: NoWayToNode, Grade: Likely, What: fmt.Sprintf("%s gets no answer from any %s endpoint on %s: %s", n.Name, family, node, strings.Join(endpoints, ", "))}}
	}
	grade := Note
	if n.Name != "" && !e.hasPolicy() {
		grade = Likely
	}
	for _, one := range endpoints {
		list = append(list, Finding{Code: NobodyListens, Grade: grade, What: fmt.Sprintf("%s gets no answer from %s", n, one)})
	}
	return list
}

// hasPolicy reports whether the Service's namespace has NetworkPolicies, or may have.
func (e *Evidence) hasPolicy() bool {
	if e.Service == nil || e.Objects == nil || e.Objects.NoPolicies != "" {
		return true
	}
	return slices.ContainsFunc(e.Objects.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == e.Service.Namespace })
}

// refused says why an endpoint refuses connections.
func (e *Evidence) refused(to netip.AddrPort) Finding {
	for _, n := range e.probing() {
		if at := n.Probe.AtLoopback(to); at.IsValid() {
			return Finding{Code: ListensAtLoopback, Grade: Proved, What: fmt.Sprintf("%s refuses connections: the program listens at %s only", to, at)}
		}
	}
	return Finding{Code: NobodyListens, Grade: Proved, What: fmt.Sprintf("%s refuses connections", to)}
}

// tcpEndpoints are the endpoints that take new TCP connections.
func (e *Evidence) tcpEndpoints() []netip.AddrPort {
	var list []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			for _, c := range d.Candidates {
				to := netip.AddrPortFrom(c.Addr, c.Port)
				if c.Chosen && strings.HasSuffix(d.Frontend, "/tcp") && !seen[to] && len(list) < mostProbed {
					seen[to] = true
					list = append(list, to)
				}
			}
		}
	}
	return list
}
