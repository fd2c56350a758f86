package l2

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/fairway-net/fairway/announce/link"
)

const (
	etherARP   = 0x0806
	etherIPv6  = 0x86dd
	etherHead  = link.EtherHead
	arpLength  = 28
	arpRequest = 1
	arpReply   = 2
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arpMessage is an ARP message for IPv4 over Ethernet (RFC 826).
type arpMessage struct {
	Operation            uint16
	SenderMAC, TargetMAC net.HardwareAddr
	Sender, Target       netip.Addr
}

// parseARP reads an ARP message behind an Ethernet header.
func parseARP(frame []byte) (m arpMessage, ok bool) {
	if len(frame) < etherHead+arpLength {
		return m, false
	}
	b := frame[etherHead:]
	ethernet, ipv4 := binary.BigEndian.Uint16(b) == 1, binary.BigEndian.Uint16(b[2:]) == 0x0800
	if !ethernet || !ipv4 || b[4] != 6 || b[5] != 4 {
		return m, false
	}
	return arpMessage{
		Operation: binary.BigEndian.Uint16(b[6:]),
		SenderMAC: net.HardwareAddr(b[8:14]), Sender: netip.AddrFrom4([4]byte(b[14:18])),
		TargetMAC: net.HardwareAddr(b[18:24]), Target: netip.AddrFrom4([4]byte(b[24:28])),
	}, true
}

// frame writes the message into an Ethernet frame from the sender to a machine.
func (m *arpMessage) frame(to net.HardwareAddr) []byte {
	b := link.Ethernet(to, m.SenderMAC, etherARP)
	b = append(b, 0, 1, 0x08, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, m.Operation)
	b = append(b, m.SenderMAC...)
	b = append(b, m.Sender.AsSlice()...)
	b = append(b, m.TargetMAC...)
	return append(b, m.Target.AsSlice()...)
}

// gratuitousARP are the two forms in which machines are told of an address
// unasked; some take in only the one, some only the other (RFC 5944, 4.6).
func gratuitousARP(a netip.Addr, mac net.HardwareAddr) [][]byte {
	request := arpMessage{Operation: arpRequest, SenderMAC: mac, Sender: a, TargetMAC: make(net.HardwareAddr, 6), Target: a}
	reply := arpMessage{Operation: arpReply, SenderMAC: mac, Sender: a, TargetMAC: broadcast, Target: a}
	return [][]byte{request.frame(broadcast), reply.frame(broadcast)}
}

// probeARP asks whether somebody has the address without saying that it is
// one's own (RFC 5227).
func probeARP(a netip.Addr, mac net.HardwareAddr) []byte {
	m := arpMessage{Operation: arpRequest, SenderMAC: mac, Sender: netip.IPv4Unspecified(), TargetMAC: make(net.HardwareAddr, 6), Target: a}
	return m.frame(broadcast)
}
