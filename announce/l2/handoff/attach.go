package handoff

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	filterPriority = 0xf9f // before those that answer ARP, and those of ebpf mode
	filterName     = "fairway-handoff"
)

// attach puts the program before all others: by tcx (Linux 6.6), or as a filter of the
// interface's clsact, which goes when it is detached or replaced.
func attach(device *net.Interface, program *ebpf.Program) (detach func() error, err error) {
	at, err := link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err == nil {
		return at.Close, nil
	}
	if !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := h.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		h.Close()
		return nil, fmt.Errorf("add queueing discipline clsact: %w", err)
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device.Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
		},
		Name: filterName, DirectAction: true, Fd: program.FD(),
	}
	if err := h.FilterReplace(f); err != nil {
		h.Close()
		return nil, fmt.Errorf("replace filter: %w", err)
	}
	return func() error {
		defer h.Close()
		if err := h.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove filter: %w", err)
		}
		return nil
	}, nil
}
