package tcfilter

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Each does something at all interfaces but some, given by index, and names those at which
// it says that there was something. It looks at the network namespace of the calling
// thread. What names it in errors.
func Each(what string, stay func(index int) bool, do func(h *netlink.Handle, index int) (there bool, err error)) (found []string, err error) {
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
		if stay(l.Attrs().Index) {
			continue
		}
		there, err := do(h, l.Attrs().Index)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s on %s: %w", what, l.Attrs().Name, err))
		}
		if there {
			found = append(found, l.Attrs().Name)
		}
	}
	return found, errors.Join(errs...)
}
