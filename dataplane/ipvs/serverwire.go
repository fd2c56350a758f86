package ipvs

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// serverCommand is one message to IPVS: its verb, about a virtual server or a destination
// of one.
type serverCommand struct {
	verb uint8
	id   serverID
	service
	destination
}

// Verbs and attributes of IPVS's generic netlink family (linux/ip_vs.h). The library
// sends one message at a time, and keeps these to itself.
const (
	newServer      = 1
	deleteServer   = 3
	newDestination = 5
	setDestination = 6

	attrServer      = 1
	attrDestination = 2

	serverFamily    = 1
	serverProtocol  = 2
	serverAddress   = 3
	serverPort      = 4
	serverMark      = 5
	serverScheduler = 6
	serverFlags     = 7
	serverTimeout   = 8
	serverNetmask   = 9

	destinationAddress = 1
	destinationPort    = 2
	destinationMethod  = 3 // 0 is masquerading
	destinationWeight  = 4
	destinationUpper   = 5
	destinationLower   = 6
)

// genericHeader is struct genlmsghdr with a verb of IPVS's.
type genericHeader [4]byte

func (h genericHeader) Len() int          { return len(h) }
func (h genericHeader) Serialize() []byte { return h[:] }

func (c serverCommand) request(family uint16) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(int(family), 0)
	req.AddData(genericHeader{c.verb, 1})
	req.AddData(c.server())
	if c.verb == newDestination || c.verb == setDestination {
		d := nl.NewRtAttr(attrDestination|unix.NLA_F_NESTED, nil)
		d.AddRtAttr(destinationAddress, c.addr.Addr().AsSlice())
		d.AddRtAttr(destinationPort, big16(c.addr.Port()))
		d.AddRtAttr(destinationMethod, nl.Uint32Attr(0))
		d.AddRtAttr(destinationWeight, nl.Uint32Attr(uint32(c.weight)))
		d.AddRtAttr(destinationUpper, nl.Uint32Attr(0))
		d.AddRtAttr(destinationLower, nl.Uint32Attr(0))
		req.AddData(d)
	}
	return req
}

func (c serverCommand) server() *nl.RtAttr {
	family, netmask := uint16(unix.AF_INET), ^uint32(0)
	if c.id.ipv6 {
		family, netmask = unix.AF_INET6, 128
	}
	s := nl.NewRtAttr(attrServer|unix.NLA_F_NESTED, nil)
	s.AddRtAttr(serverFamily, nl.Uint16Attr(family))
	if c.id.mark != 0 {
		s.AddRtAttr(serverMark, nl.Uint32Attr(c.id.mark))
	} else {
		s.AddRtAttr(serverProtocol, nl.Uint16Attr(uint16(c.id.key.Proto)))
		s.AddRtAttr(serverAddress, c.id.key.Addr.AsSlice())
		s.AddRtAttr(serverPort, big16(c.id.key.Port))
	}
	if c.verb == newServer {
		s.AddRtAttr(serverScheduler, nl.ZeroTerminated(string(c.scheduler)))
		s.AddRtAttr(serverFlags, append(nl.Uint32Attr(c.flags), 0xff, 0xff, 0xff, 0xff))
		s.AddRtAttr(serverTimeout, nl.Uint32Attr(c.timeout))
		s.AddRtAttr(serverNetmask, nl.Uint32Attr(netmask))
	}
	return s
}

func big16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
