package host

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/kernel"
)

// uplinkBridges are the bridges that default routes lead to.
func uplinkBridges() ([]string, error) {
	routes, err := kernel.List(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	uplinks := map[int]bool{}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 {
				continue
			}
		}
		uplinks[r.LinkIndex] = true
		for _, hop := range r.MultiPath {
			uplinks[hop.LinkIndex] = true
		}
	}
	links, err := kernel.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var bridges []string
	for _, l := range links {
		if l.Type() == "bridge" && uplinks[l.Attrs().Index] {
			bridges = append(bridges, l.Attrs().Name)
		}
	}
	slices.Sort(bridges)
	return bridges, nil
}
