package userspace

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

func ruleBack(family int) *netlink.Rule {
	mask := uint32(0xffffffff)
	r := netlink.NewRule()
	r.Family, r.Priority, r.Mark, r.Mask, r.Table, r.Protocol = family, returnPriority, returnMark, &mask, returnTable, routeProtocol
	return r
}

func routeBack(family int) *netlink.Route {
	r := &netlink.Route{
		Family: family, Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		Table: returnTable, Protocol: routeProtocol, Type: unix.RTN_LOCAL, LinkIndex: loopback,
	}
	if family == netlink.FAMILY_V4 {
		r.Dst, r.Scope = &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, netlink.SCOPE_HOST
	}
	return r
}

// loopback is the index of the interface lo, the first of any namespace
// (LOOPBACK_IFINDEX, net/flow.h).
const loopback = 1

func returnRule(family int) kernel.Object {
	return kernel.Object{Kind: kindRule, Name: version(family), Text: fmt.Sprintf("priority %d fwmark %#x lookup %d", returnPriority, returnMark, returnTable)}
}

func returnRoute(family int) kernel.Object {
	return kernel.Object{Kind: kindRoute, Name: fmt.Sprintf("default table %d %s", returnTable, version(family)), Text: "local"}
}

func version(family int) string {
	if family == netlink.FAMILY_V6 {
		return "IPv6"
	}
	return "IPv4"
}

func netfilterObject() kernel.Object {
	return kernel.Object{
		Kind: kindNetfilter, Name: "inet " + netfilterTable + " " + netfilterChain,
		Text: fmt.Sprintf("type filter hook prerouting priority %d; %s", *returnHook, netfilterRule),
	}
}

func connectionsObject() kernel.Object {
	return kernel.Object{
		Kind: kindNetfilter, Name: "inet " + netfilterTable + " " + connectionsChain,
		Text: "type nat hook prerouting priority dstnat; " + connectionsRule,
	}
}

// returnPathObjects are all of them.
func returnPathObjects() map[kernel.Object]bool {
	all := map[kernel.Object]bool{netfilterObject(): true, connectionsObject(): true}
	for _, family := range families {
		all[returnRule(family)], all[returnRoute(family)] = true, true
	}
	return all
}
