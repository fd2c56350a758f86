package lvs

import (
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ServerCommand is one message to IPVS: its verb, about a virtual server or a destination
// of one.
type ServerCommand struct {
	Verb uint8
	ID   ServerID
	Service
	Destination
}

// Verbs and attributes of IPVS's generic netlink family (linux/ip_vs.h). The library
// sends one message at a time, and keeps these to itself.
const (
	NewServer      = 1
	DeleteServer   = 3
	NewDestination = 5
	SetDestination = 6

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

func (c ServerCommand) request(family uint16) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(int(family), 0)
	req.AddData(genericHeader{c.Verb, 1})
	req.AddData(c.server())
	if c.Verb == NewDestination || c.Verb == SetDestination {
		d := nl.NewRtAttr(attrDestination|unix.NLA_F_NESTED, nil)
		d.AddRtAttr(destinationAddress, c.Addr.Addr().AsSlice())
		d.AddRtAttr(destinationPort, big16(c.Addr.Port()))
		d.AddRtAttr(destinationMethod, nl.Uint32Attr(0))
		d.AddRtAttr(destinationWeight, nl.Uint32Attr(uint32(c.Weight)))
		d.AddRtAttr(destinationUpper, nl.Uint32Attr(0))
		d.AddRtAttr(destinationLower, nl.Uint32Attr(0))
		req.AddData(d)
	}
	return req
}

func (c ServerCommand) server() *nl.RtAttr {
	family, netmask := uint16(unix.AF_INET), ^uint32(0)
	if c.ID.IPv6 {
		family, netmask = unix.AF_INET6, 128
	}
	s := nl.NewRtAttr(attrServer|unix.NLA_F_NESTED, nil)
	s.AddRtAttr(serverFamily, nl.Uint16Attr(family))
	if c.ID.Mark != 0 {
		s.AddRtAttr(serverMark, nl.Uint32Attr(c.ID.Mark))
	} else {
		s.AddRtAttr(serverProtocol, nl.Uint16Attr(uint16(c.ID.Key.Proto)))
		s.AddRtAttr(serverAddress, c.ID.Key.Addr.AsSlice())
		s.AddRtAttr(serverPort, big16(c.ID.Key.Port))
	}
	if c.Verb == NewServer {
		s.AddRtAttr(serverScheduler, nl.ZeroTerminated(string(c.Scheduler)))
		s.AddRtAttr(serverFlags, append(nl.Uint32Attr(c.Flags), 0xff, 0xff, 0xff, 0xff))
		s.AddRtAttr(serverTimeout, nl.Uint32Attr(c.Timeout))
		s.AddRtAttr(serverNetmask, nl.Uint32Attr(netmask))
	}
	return s
}

func big16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
