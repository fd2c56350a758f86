package responder

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

const (
	filterPriority = 0xfa0 // before those of ebpf mode
	filterName     = "fairway-l2"
)

// hook is the place of the program at an interface. The handle stays in the network
// namespace in which it was opened.
type hook struct {
	netlink *netlink.Handle
	index   int
}

func (h *hook) filter() *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: h.index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Name: filterName, DirectAction: true,
	}
}

func (h *hook) qdisc() netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: h.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
}

// list lists the filters at one side of the interface.
func (h *hook) list(parent uint32) ([]netlink.Filter, error) {
	device := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: h.index}}
	list, err := kernel.List(func() ([]netlink.Filter, error) { return h.netlink.FilterList(device, parent) })
	if errors.Is(err, unix.EINVAL) || isGone(err) {
		return nil, nil // no such queueing discipline, or no such interface
	}
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return list, nil
}

// find returns our filter; nil if there is none.
func (h *hook) find() (*netlink.BpfFilter, error) {
	list, err := h.list(netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Priority == filterPriority && strings.HasPrefix(b.Name, filterName) {
			return b, nil
		}
	}
	return nil, nil
}

// attach puts a program in the place of the one before, at once.
func (h *hook) attach(program int) error {
	if err := h.netlink.QdiscAdd(h.qdisc()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add queueing discipline clsact: %w", err)
	}
	f := h.filter()
	f.Fd = program
	if err := h.netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("replace filter: %w", err)
	}
	return nil
}

// detach removes the program, and the queueing discipline if it then has none.
func (h *hook) detach() (found bool, err error) {
	f, err := h.find()
	if err != nil || f == nil {
		return false, err
	}
	if err := h.netlink.FilterDel(f); err != nil && !isGone(err) {
		return true, fmt.Errorf("remove filter: %w", err)
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		others, err := h.list(parent)
		if err != nil || len(others) > 0 {
			return true, err
		}
	}
	if err := h.netlink.QdiscDel(h.qdisc()); err != nil && !isGone(err) {
		return true, fmt.Errorf("remove queueing discipline clsact: %w", err)
	}
	return true, nil
}

// isGone reports whether an interface, or what hung at it, is no more.
func isGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// Sweep ends the answers on all interfaces but some, given by index, and names those
// where there were any.
func Sweep(stay func(index int) bool) ([]string, error) { return sweep(stay, true) }

// Leftovers names the interfaces on which a program answers.
func Leftovers() ([]string, error) { return sweep(func(int) bool { return false }, false) }

func sweep(stay func(index int) bool, remove bool) (found []string, err error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer h.Close()
	links, err := kernel.List(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		at := hook{netlink: h, index: l.Attrs().Index}
		if stay(at.index) {
			continue
		}
		var there bool
		if remove {
			there, err = at.detach()
		} else {
			var f *netlink.BpfFilter
			f, err = at.find()
			there = f != nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("end answers on %s: %w", l.Attrs().Name, err))
		}
		if there {
			found = append(found, l.Attrs().Name)
		}
	}
	return found, errors.Join(errs...)
}
