package userspace

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Script gives the kernel's part as input for the usual tools: ipv4.ip-batch
// for `ip -4 -batch`, ipv6.ip-batch for `ip -6 -batch`, return.nft for `nft -f`.
// The relay's part, which no tool can do, stands there as comments.
func Script(t *model.Table, _ kernel.Options) (map[string]string, error) {
	t = model.Expand(t)
	return map[string]string{
		"ipv4.ip-batch": batch(t, netip.Addr.Is4),
		"ipv6.ip-batch": batch(t, netip.Addr.Is6),
		"return.nft": fmt.Sprintf("table inet %s {\n\tchain %s {\n\t\ttype nat hook prerouting priority dstnat;\n\t\t%s\n\t}\n"+
			"\tchain %s {\n\t\ttype filter hook prerouting priority %d;\n\t\t%s\n\t}\n}\n",
			netfilterTable, connectionsChain, connectionsRule, netfilterChain, *returnHook, netfilterRule),
	}, nil
}

func batch(t *model.Table, family func(netip.Addr) bool) string {
	var b strings.Builder
	b.WriteString("# Answers to connections that have their client's address come back to the relay.\n")
	fmt.Fprintf(&b, "route replace local default dev lo table %d proto %d\n", returnTable, routeProtocol)
	fmt.Fprintf(&b, "rule add priority %d fwmark %#x lookup %d protocol %d\n", returnPriority, returnMark, returnTable, routeProtocol)
	b.WriteString("# Service addresses are this node's own.\n")
	for _, p := range slices.SortedFunc(maps.Keys(routesFor(t)), netip.Prefix.Compare) {
		if family(p.Addr()) {
			fmt.Fprintf(&b, "route replace local %s dev lo table local proto %d\n", p, routeProtocol)
		}
	}
	b.WriteString("# The relay listens:\n")
	for _, f := range t.SortedFrontends() {
		if family(f.Addr) && listens(t, f) {
			fmt.Fprintf(&b, "#   %s %s\n", f.Key, listenerText(f))
		}
	}
	b.WriteString("# ... and connects to:\n")
	for _, p := range t.SortedPools() {
		if p.ID.Proto != model.SCTP && family(netip.IPv6Unspecified()) == p.ID.IPv6 {
			fmt.Fprintf(&b, "#   %s\n", strings.TrimSpace(p.ID.String()+": "+poolText(p)))
		}
	}
	return b.String()
}
