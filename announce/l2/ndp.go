package l2

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/announce/link"
)

// Of RFC 4443 and RFC 4861.
const (
	ipv6Head      = 40
	icmpv6        = 58
	solicitation  = 135
	advertisement = 136
	sourceOption  = 1
	targetOption  = 2
	naSolicited   = 1 << 6
	naOverride    = 1 << 5
	ndpHopLimit   = 255
)

var allNodes = netip.MustParseAddr("ff02::1")

// ndpMessage is a neighbor solicitation or advertisement.
type ndpMessage struct {
	Type             byte
	Flags            byte // of an advertisement
	Source, To       netip.Addr
	Target           netip.Addr
	MAC              net.HardwareAddr // of the option; nil without one
	FrameSource      net.HardwareAddr
	FrameDestination net.HardwareAddr
}

// parseNDP reads a message behind Ethernet and IPv6 headers. Messages with a hop
// limit below 255 come from another link and are none (RFC 4861, 7.1).
func parseNDP(frame []byte) (m ndpMessage, ok bool) {
	if len(frame) < etherHead+ipv6Head+24 {
		return m, false
	}
	ip := frame[etherHead:]
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip[6] != icmpv6 || ip[7] != ndpHopLimit || length < 24 || len(ip) < ipv6Head+length {
		return m, false
	}
	source, to := netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	b := ip[ipv6Head : ipv6Head+length]
	if (b[0] != solicitation && b[0] != advertisement) || b[1] != 0 || checksum(source, to, b) != 0 {
		return m, false
	}
	m = ndpMessage{
		Type: b[0], Source: source, To: to, Target: netip.AddrFrom16([16]byte(b[8:24])),
		FrameDestination: net.HardwareAddr(frame[:6]), FrameSource: net.HardwareAddr(frame[6:12]),
	}
	if m.Type == advertisement {
		m.Flags = b[4]
	}
	for options := b[24:]; len(options) >= 8; {
		n := int(options[1]) * 8
		if n == 0 || n > len(options) {
			return m, false
		}
		if options[0] == sourceOption || options[0] == targetOption {
			m.MAC = net.HardwareAddr(options[2:8])
		}
		options = options[n:]
	}
	return m, true
}

// frame writes the message into a frame from the option's MAC to a machine.
func (m *ndpMessage) frame() []byte {
	b := link.Ethernet(m.FrameDestination, m.FrameSource, etherIPv6)
	body := append([]byte{m.Type, 0, 0, 0, m.Flags, 0, 0, 0}, m.Target.AsSlice()...)
	if m.MAC != nil {
		option := byte(targetOption)
		if m.Type == solicitation {
			option = sourceOption
		}
		body = append(append(body, option, 1), m.MAC...)
	}
	binary.BigEndian.PutUint16(body[2:], checksum(m.Source, m.To, body))
	b = append(b, 6<<4, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, icmpv6, ndpHopLimit)
	b = append(append(b, m.Source.AsSlice()...), m.To.AsSlice()...)
	return append(b, body...)
}

// checksum of an ICMPv6 message with its pseudo header; 0 if the message has a
// right one.
func checksum(source, to netip.Addr, message []byte) uint16 {
	pseudo := append(source.AsSlice(), to.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(message)))
	pseudo = append(append(pseudo, 0, 0, 0, icmpv6), message...)
	var sum uint32
	for ; len(pseudo) > 1; pseudo = pseudo[2:] {
		sum += uint32(binary.BigEndian.Uint16(pseudo))
	}
	if len(pseudo) == 1 {
		sum += uint32(pseudo[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// answer is the advertisement that answers a solicitation. A sender
// without an address probes for duplicates: the answer goes to all (RFC 4861, 7.2.4).
func (m *ndpMessage) answer(mac net.HardwareAddr) []byte {
	a := ndpMessage{Type: advertisement, Flags: naOverride | naSolicited, Source: m.Target, Target: m.Target, To: m.Source, MAC: mac, FrameSource: mac, FrameDestination: m.FrameSource}
	if m.Source.IsUnspecified() {
		a.Flags, a.To, a.FrameDestination = naOverride, allNodes, multicastMAC(allNodes)
	}
	return a.frame()
}

// unsolicitedNA tells all machines of an address unasked.
func unsolicitedNA(a netip.Addr, mac net.HardwareAddr) []byte {
	m := ndpMessage{Type: advertisement, Flags: naOverride, Source: a, Target: a, To: allNodes, MAC: mac, FrameSource: mac, FrameDestination: multicastMAC(allNodes)}
	return m.frame()
}

// probeNS asks whether somebody has the address (RFC 4862, 5.4.2).
func probeNS(a netip.Addr, mac net.HardwareAddr) []byte {
	group := solicitedNode(a)
	m := ndpMessage{Type: solicitation, Source: netip.IPv6Unspecified(), Target: a, To: group, FrameSource: mac, FrameDestination: multicastMAC(group)}
	return m.frame()
}

// solicitedNode is the group that solicitations for an address are sent to.
func solicitedNode(a netip.Addr) netip.Addr {
	b, group := a.As16(), netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], b[13:])
	return netip.AddrFrom16(group)
}

func multicastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}
