package packet

import (
	"encoding/binary"
	"errors"
	"fmt"

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
