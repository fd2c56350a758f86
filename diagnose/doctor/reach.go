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

// checkEndpoints finds FW103, FW105 and FW129: endpoints that refuse connections or
// can't be reached. All are tried at once.
func checkEndpoints(ctx context.Context, e *Evidence) []Finding {
	targets := e.tcpEndpoints()
	results := make([]string, len(targets))
	var group sync.WaitGroup
	for i, to := range targets {
		group.Go(func() { results[i] = e.Probe.Connect(ctx, to) })
	}
	group.Wait()
	var list []Finding
	silent := map[string][]string{} // endpoints by node and address family
	asked := map[string]int{}
	for i, to := range targets {
		node := e.nodeOf(to.Addr()) + "/" + map[bool]string{false: "IPv4", true: "IPv6"}[to.Addr().Is6()]
		asked[node]++
		switch results[i] {
		case "ok":
		case "refused":
			list = append(list, e.refused(to))
		case "no route to host", "network is unreachable":
			list = append(list, Finding{Code: "FW129", Grade: Proved, What: fmt.Sprintf("this machine has no way to %s: %s", to, results[i])})
		default:
			silent[node] = append(silent[node], fmt.Sprintf("%s (%s)", to, results[i]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(silent)) {
		node, family, _ := strings.Cut(key, "/")
		list = append(list, e.silent(node, family, silent[key], len(silent[key]) == asked[key])...)
	}
	return list
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
func (e *Evidence) silent(node, family string, endpoints []string, all bool) (list []Finding) {
	if e.HostNode != "" && node != "" && node != e.HostNode && all && !e.hasPolicy() {
		return []Finding{{Code: "FW129", Grade: Likely, What: fmt.Sprintf("%s gets no answer from any %s endpoint on %s: %s", e.HostNode, family, node, strings.Join(endpoints, ", "))}}
	}
	grade, who := Note, "this machine"
	if e.HostNode != "" && !e.hasPolicy() {
		grade, who = Likely, e.HostNode
	}
	for _, one := range endpoints {
		list = append(list, Finding{Code: "FW103", Grade: grade, What: fmt.Sprintf("%s gets no answer from %s", who, one)})
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
	if at := e.Probe.AtLoopback(to); at.IsValid() {
		return Finding{Code: "FW105", Grade: Proved, What: fmt.Sprintf("%s refuses connections: the program listens at %s only", to, at)}
	}
	return Finding{Code: "FW103", Grade: Proved, What: fmt.Sprintf("%s refuses connections", to)}
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
