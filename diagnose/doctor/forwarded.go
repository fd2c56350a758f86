package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mostClients is how many pods are looked for on the machine, one of which tries.
const mostClients = 16

// checkForwarded finds FW118 by trying: an endpoint that answers a node, and not a
// pod on it, whose packets are forwarded. Where no firewall but Fairway's own tables is
// there, something else drops them, and nothing is said.
func checkForwarded(ctx context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, n := range e.probing() {
		if f, found := e.forwardedOn(ctx, n); found {
			list = append(list, f)
		}
	}
	return list
}

func (e *Evidence) forwardedOn(ctx context.Context, n *Node) (f Finding, found bool) {
	chains := n.foreignForwarding()
	if len(chains) == 0 {
		return f, false
	}
	for _, to := range e.tcpEndpoints() {
		if n.Probe.Connect(ctx, to) != "ok" {
			continue // which is said elsewhere
		}
		for _, client := range e.clients(n, to.Addr()) {
			result := n.Probe.ConnectFrom(ctx, client.addr, to)
			if result == "" {
				continue // it isn't on this machine
			}
			if result == "ok" {
				break
			}
			return Finding{Code: ForeignFirewall, Grade: Likely, What: fmt.Sprintf("%s answers %s, and not what is forwarded from %s: %s. Rules of %s see it on its way", to, n, client.name, result, join(tables(chains))), Fix: e.letThrough(chains)}, true
		}
	}
	return f, false
}

// tables are those of chains, for people.
func tables(chains []Chain) []string {
	var list []string
	for _, c := range chains {
		list = append(list, c.Family+" "+c.Table)
	}
	return list
}

// podClient is a pod that can try.
type podClient struct {
	addr netip.Addr
	name string
}

// clients are pods that may be on the node: the one that is asked about, or some that aren't
// the endpoint itself.
func (e *Evidence) clients(n *Node, endpoint netip.Addr) []podClient {
	var list []podClient
	if from := e.Report.From; from.Kind == "pod" && from.Addr.Is6() == endpoint.Is6() {
		return []podClient{{from.Addr, "pod " + from.Namespace + "/" + from.Name}}
	}
	if e.Objects == nil {
		return nil
	}
	for _, p := range e.Objects.Pods {
		if n.Name != "" && p.Spec.NodeName != n.Name || p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning || len(list) == mostClients {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && a != endpoint && a.Is6() == endpoint.Is6() {
				list = append(list, podClient{a, "pod " + p.Namespace + "/" + p.Name})
			}
		}
	}
	return list
}

// foreignForwarding are chains of others that see forwarded packets, one of each table.
func (n *Node) foreignForwarding() []Chain {
	if n.Host == nil {
		return nil
	}
	var list []Chain
	for _, c := range n.Host.Chains {
		own := c.Table == "fairway" || strings.HasPrefix(c.Table, "fairway-")
		same := func(o Chain) bool { return o.Family == c.Family && o.Table == c.Table && o.Legacy == c.Legacy }
		if c.Hook == "forward" && !own && !slices.ContainsFunc(list, same) && (c.Rules > 0 || !c.iptables()) {
			list = append(list, c)
		}
	}
	return list
}

// iptables reports whether the chain is of iptables, whose tables are there also without
// a rule.
func (c Chain) iptables() bool { return c.Legacy || c.Table == "filter" || c.Table == "mangle" }
