package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/internal/tcfilter"
)

// clsact attaches by filters of the clsact queueing discipline: for kernels
// without tcx (before 6.6).
type clsact struct {
	netlink *netlink.Handle
	build   string
}

const (
	filterPriority = 0xfa1 // any fixed number, so that a filter can be replaced
	filterPrefix   = "fairway-"
)

// parents are where the filters of the two sides hang.
var parents = map[string]uint32{ingressSide: tcfilter.Ingress, egressSide: tcfilter.Egress, bridgedSide: tcfilter.Egress}

func (c *clsact) at(l netlink.Link, side string) tcfilter.Place {
	return tcfilter.Place{Netlink: c.netlink, Index: l.Attrs().Index, Side: parents[side], Priority: filterPriority, Prefix: filterPrefix}
}

func (c *clsact) name(side string) string { return filterPrefix + side + "-" + c.build }

func (c *clsact) running(live []netlink.Link) (bool, error) {
	for _, l := range live {
		for side := range parents {
			if ours, err := c.at(l, side).Find(); err != nil || ours != nil {
				return err == nil, err
			}
		}
	}
	return false, nil
}

func (c *clsact) attached(l netlink.Link, at []string) (bool, error) {
	for _, side := range at {
		ours, err := c.at(l, side).Find()
		if err != nil || ours == nil || ours.Name != c.name(side) {
			return false, err
		}
	}
	return true, nil
}

func (c *clsact) attach(l netlink.Link, programs bySide) error {
	for _, side := range slices.Sorted(maps.Keys(programs)) {
		if err := c.at(l, side).Attach(c.name(side), programs[side].FD()); err != nil {
			return err
		}
	}
	return nil
}

func (c *clsact) release(l netlink.Link, kind linkKind) error {
	for _, side := range allSides {
		if _, wanted := sidePrograms[kind][side]; wanted {
			continue
		}
		ours, err := c.at(l, side).Find()
		if err == nil && ours != nil && strings.HasPrefix(ours.Name, filterPrefix+side+"-") {
			_, err = c.at(l, side).Detach()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forget has nothing to do: filters go with their interface.
func (c *clsact) forget(map[int]linkKind) error { return nil }

func (c *clsact) remove(live []netlink.Link) error {
	for _, l := range live {
		for side := range parents {
			if _, err := c.at(l, side).Detach(); err != nil {
				return fmt.Errorf("detach programs from interface %s: %w", l.Attrs().Name, err)
			}
		}
	}
	return nil
}
