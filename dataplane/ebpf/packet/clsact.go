package packet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
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
var parents = map[string]uint32{ingressSide: netlink.HANDLE_MIN_INGRESS, egressSide: netlink.HANDLE_MIN_EGRESS}

func (c *clsact) filter(l netlink.Link, side string) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: parents[side], Handle: 1, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Name: filterPrefix + side + "-" + c.build, DirectAction: true,
	}
}

func (c *clsact) qdisc(l netlink.Link) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
}

// filters lists the bpf filters at one side of an interface, ours and others'.
func (c *clsact) filters(l netlink.Link, side string) (ours *netlink.BpfFilter, others int, err error) {
	list, err := kernel.List(func() ([]netlink.Filter, error) { return c.netlink.FilterList(l, parents[side]) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, 0, nil // no such queueing discipline
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list filters: %w", err)
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == filterPriority && len(b.Name) > len(filterPrefix) && b.Name[:len(filterPrefix)] == filterPrefix {
			ours = b
		} else {
			others++
		}
	}
	return ours, others, nil
}

func (c *clsact) running(live []netlink.Link) (bool, error) {
	for _, l := range live {
		for side := range parents {
			if ours, _, err := c.filters(l, side); err != nil || ours != nil {
				return err == nil, err
			}
		}
	}
	return false, nil
}

func (c *clsact) attached(l netlink.Link, at []string) (bool, error) {
	for _, side := range at {
		ours, _, err := c.filters(l, side)
		if err != nil || ours == nil || ours.Name != c.filter(l, side).Name {
			return false, err
		}
	}
	return true, nil
}

func (c *clsact) attach(l netlink.Link, programs bySide) error {
	if err := c.netlink.QdiscAdd(c.qdisc(l)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add queueing discipline clsact: %w", err)
	}
	for _, side := range slices.Sorted(maps.Keys(programs)) {
		f := c.filter(l, side)
		f.Fd = programs[side].FD()
		if err := c.netlink.FilterReplace(f); err != nil {
			return fmt.Errorf("replace filter: %w", err)
		}
	}
	return nil
}

// forget has nothing to do: filters go with their interface.
func (c *clsact) forget(map[int]bool) error { return nil }

// remove removes our filters, and the queueing discipline if it then has none.
func (c *clsact) remove(live []netlink.Link) error {
	for _, l := range live {
		removed, others := false, 0
		for side := range parents {
			ours, n, err := c.filters(l, side)
			if err != nil {
				return err
			}
			others += n
			if ours == nil {
				continue
			}
			if err := c.netlink.FilterDel(ours); err != nil && !isGone(err) {
				return fmt.Errorf("remove filter of %s: %w", l.Attrs().Name, err)
			}
			removed = true
		}
		if !removed || others > 0 {
			continue
		}
		if err := c.netlink.QdiscDel(c.qdisc(l)); err != nil && !isGone(err) {
			return fmt.Errorf("remove queueing discipline clsact of %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
