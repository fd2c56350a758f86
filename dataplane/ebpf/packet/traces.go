package packet

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Traces reports whether an interface has a filter of ours, or any program by tcx. It
// takes CAP_NET_ADMIN only; what it can't find out, it takes for there.
func Traces() bool {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return true
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return true
	}
	filters := clsact{netlink: handle}
	if running, err := filters.running(links); err != nil || running {
		return true
	}
	for _, l := range links {
		for _, side := range sides {
			found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: side})
			switch {
			case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL):
			case err != nil, len(found.Programs) > 0:
				return true
			}
		}
	}
	return false
}
