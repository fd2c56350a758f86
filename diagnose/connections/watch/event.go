package watch

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// What is what an event is about: enum what of bpf/watch.c.
type What uint8

// The kinds of events.
const (
	Enters      What = 1 + iota // a packet, before the plane's programs
	Leaves                      // behind them
	Connects                    // a datagram socket is connected to a frontend
	Sends                       // an unconnected one begins to send to one
	Established                 // a connection of a socket
	Failed                      // before it was established
	Closed                      // after that
)

// Event is what passed.
type Event struct {
	What      What
	ID        uint64 // of a socket: all its events have the same
	Proto     model.Protocol
	Client    netip.AddrPort // where the packet comes from; of sockets, as far as it is known
	To        netip.AddrPort // where the packet, or the socket, is going
	Backend   netip.AddrPort // that a socket was given
	Own       bool           // the node itself sends it
	Egress    bool           // at the end of an interface where packets leave
	Interface int            // the index of the one that a packet is at
	TCPFlags  uint8
	PID       int
	Errno     int
	In, Out   uint64

	tuple watchTuple // the key of the entry that it would have in the connection table
}

func decode(e *watchSeen) Event {
	const egress = 2 // enum hook of packet/bpf/packet.h
	return Event{
		What: What(e.What), ID: e.Id, Proto: model.Protocol(e.Packet.Proto),
		Client: addrPort(e.Packet.Src.Word, e.Packet.Sport), To: addrPort(e.Packet.Dst.Word, e.Packet.Dport),
		Backend: addrPort(e.Backend.Addr.Word, e.Backend.Port),
		Own:     e.Own != 0, Egress: e.Packet.Hook == egress, Interface: int(e.Ifindex), TCPFlags: e.Flags,
		PID: int(e.Pid), Errno: int(e.Error), In: e.In, Out: e.Out, tuple: e.Packet,
	}
}

// addrPort is an address and a port in network byte order; invalid if it is unset.
func addrPort(words [4]uint32, port uint16) netip.AddrPort {
	var a [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(a[4*i:], w)
	}
	addr := netip.AddrFrom16(a).Unmap()
	if addr.IsUnspecified() && port == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port)))
}
