package responder

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/tcfilter"
)

const (
	filterPriority = 0xfa0 // before those of ebpf mode
	filterName     = "fairway-l2"
)

// place is where the program is at an interface. The handle stays in the network
// namespace in which it was opened.
func place(h *netlink.Handle, index int) tcfilter.Place {
	return tcfilter.Place{Netlink: h, Index: index, Side: tcfilter.Ingress, Priority: filterPriority, Prefix: filterName}
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
		at := place(h, l.Attrs().Index)
		if stay(at.Index) {
			continue
		}
		var there bool
		if remove {
			there, err = at.Detach()
		} else {
			var f *netlink.BpfFilter
			f, err = at.Find()
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
