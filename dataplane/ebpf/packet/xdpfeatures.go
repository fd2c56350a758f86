package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// xdpFeature is what a driver offers (linux/netdev.h, enum netdev_xdp_act).
type xdpFeature uint64

const (
	xdpBasic     xdpFeature = 1 // XDP_PASS, XDP_DROP, XDP_TX
	xdpRedirects xdpFeature = 2 // frames that came in, to other interfaces
	xdpSends     xdpFeature = 4 // frames that others redirect to it
)

func (f xdpFeature) uplinkFlags() uint16 {
	if f&xdpSends != 0 {
		return uplinkSends
	}
	return 0
}

// Of linux/netdev.h.
const (
	netdevFamily      = "netdev"
	netdevCmdGet      = 1
	netdevIfindex     = 1
	netdevXDPFeatures = 3
)

// xdpFeatures asks what the driver of an interface offers. Kernels before 6.3 don't tell, and
// count as offering nothing: whether a driver sends for others can't be found out otherwise.
func xdpFeatures(h *netlink.Handle, index int) (xdpFeature, error) {
	family, err := h.GenlFamilyGet(netdevFamily)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find netlink family %s: %w", netdevFamily, err)
	}
	r := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
	header := []byte{netdevCmdGet, 1, 0, 0} // nl.Genlmsg has anything in its reserved bytes, which this family refuses
	r.AddRawData(append(header, nl.NewRtAttr(netdevIfindex, nl.Uint32Attr(uint32(index))).Serialize()...))
	answers, err := r.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return 0, fmt.Errorf("ask for the features of interface %d: %w", index, err)
	}
	for _, answer := range answers {
		attrs, err := nl.ParseRouteAttr(answer[nl.SizeofGenlmsg:])
		if err != nil {
			return 0, fmt.Errorf("read the features of interface %d: %w", index, err)
		}
		for _, a := range attrs {
			if a.Attr.Type&nl.NLA_TYPE_MASK == netdevXDPFeatures && len(a.Value) >= 8 {
				return xdpFeature(binary.NativeEndian.Uint64(a.Value)), nil
			}
		}
	}
	return 0, nil
}

// Of linux/ethtool.h.
const (
	ethtoolGetFlags = 0x25
	ethFlagRxVLAN   = 1 << 8
)

// stripsTags reports whether an interface takes VLAN tags off before its driver's program sees
// a frame.
func stripsTags(name string) (bool, error) {
	flags, err := ethtool(name, ethtoolGetFlags, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	return flags&ethFlagRxVLAN != 0, err
}

// ethtool asks a driver for a value, or sets it.
func ethtool(name string, command, data uint32) (uint32, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	value := struct{ command, data uint32 }{command, data}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if err := unix.Close(s); err != nil {
		return 0, fmt.Errorf("close socket: %w", err)
	}
	if errno != 0 {
		return 0, fmt.Errorf("ask the driver of interface %s: %w", name, errno)
	}
	return value.data, nil
}
