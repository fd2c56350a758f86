// Package tcfilter keeps eBPF programs at interfaces as filters of the queueing discipline
// clsact. They stay when the process ends, and go with the interface.
package tcfilter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// The two sides of an interface.
const (
	Ingress uint32 = netlink.HANDLE_MIN_INGRESS
	Egress  uint32 = netlink.HANDLE_MIN_EGRESS
)

// Place is where one program is: one priority at one side of an interface.
type Place struct {
	Netlink  *netlink.Handle
	Index    int // of the interface
	Side     uint32
	Priority uint16
	// Prefix is what the names of programs at this place begin with; others' are left alone.
	Prefix string
}

func (p Place) qdisc() netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
}

// list lists the filters at one side of the interface, ours and others'.
func (p Place) list(side uint32) ([]netlink.Filter, error) {
	device := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: p.Index}}
	list, err := kernel.List(func() ([]netlink.Filter, error) { return p.Netlink.FilterList(device, side) })
	if errors.Is(err, unix.EINVAL) || isGone(err) {
		return nil, nil // no such queueing discipline, or no such interface
	}
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return list, nil
}

// Find returns the filter at the place; nil if there is none.
func (p Place) Find() (*netlink.BpfFilter, error) {
	list, err := p.list(p.Side)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == p.Priority && strings.HasPrefix(b.Name, p.Prefix) {
			return b, nil
		}
	}
	return nil, nil
}

// Before names the filters of a lower priority number: they see packets first.
func (p Place) Before() (names []string, err error) {
	list, err := p.list(p.Side)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if f.Attrs().Priority >= p.Priority {
			continue
		}
		name := f.Type()
		if b, ok := f.(*netlink.BpfFilter); ok {
			name = b.Name
		}
		names = append(names, name)
	}
	return names, nil
}

// Attach puts a program, given by its descriptor, in the place of the one before, at once.
func (p Place) Attach(name string, program int) error {
	if err := p.addQdisc(); err != nil {
		return fmt.Errorf("add queueing discipline clsact: %w", err)
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: p.Index, Parent: p.Side, Handle: 1, Priority: p.Priority, Protocol: unix.ETH_P_ALL},
		Name:        name, DirectAction: true, Fd: program,
	}
	if err := p.Netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("replace filter: %w", err)
	}
	return nil
}

// errIngress says that another queueing discipline has the place. It has one side only: a
// filter for the other side would run at that one, too.
var errIngress = errors.New("the interface has the queueing discipline ingress with filters of others, in whose place it would be: tc qdisc replace dev NAME clsact")

// addQdisc adds the queueing discipline, unless it is there; in the place of the one named
// ingress, if that has no filters.
func (p Place) addQdisc() error {
	err := p.Netlink.QdiscAdd(p.qdisc())
	if !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	list, err := kernel.List(func() ([]netlink.Qdisc, error) {
		return p.Netlink.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: p.Index}})
	})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, q := range list {
		if q.Type() != "ingress" {
			continue
		}
		filters, err := p.list(Ingress)
		if err != nil {
			return err
		}
		if len(filters) > 0 {
			return errIngress
		}
		if err := p.Netlink.QdiscDel(q); err != nil && !isGone(err) {
			return fmt.Errorf("remove queueing discipline ingress: %w", err)
		}
		return p.Netlink.QdiscAdd(p.qdisc())
	}
	return nil
}

// Detach removes the program, and the queueing discipline if it then has none.
func (p Place) Detach() (found bool, err error) {
	f, err := p.Find()
	if err != nil || f == nil {
		return false, err
	}
	if err := p.Netlink.FilterDel(f); err != nil && !isGone(err) {
		return true, fmt.Errorf("remove filter: %w", err)
	}
	for _, side := range []uint32{Ingress, Egress} {
		others, err := p.list(side)
		if err != nil || len(others) > 0 {
			return true, err
		}
	}
	if err := p.Netlink.QdiscDel(p.qdisc()); err != nil && !isGone(err) {
		return true, fmt.Errorf("remove queueing discipline clsact: %w", err)
	}
	return true, nil
}

// isGone reports whether an interface, or what hung at it, is no more.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}
