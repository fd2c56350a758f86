// Package bfd watches the ways to routers by Bidirectional Forwarding Detection
// (RFC 5880) in asynchronous mode, over one hop (RFC 5881) or several (RFC 5883).
//
//	packet.go   control packets
//	machine.go  the state of a session (pure)
//	session.go  a session at work
//	monitor.go  all sessions, and the sockets that they share
package bfd

import (
	"encoding/binary"
	"errors"
	"time"
)

// State of a session, as in packets.
type State uint8

// The states.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

// String names the state as MetalLB and routers do.
func (s State) String() string { return [...]string{"admin down", "down", "init", "up"}[s&3] }

// diagnostic says why a session went down.
type diagnostic uint8

const (
	diagNone         diagnostic = 0
	diagTimeout      diagnostic = 1
	diagNeighborDown diagnostic = 3
	diagAdminDown    diagnostic = 7
)

func (d diagnostic) String() string {
	switch d {
	case diagTimeout:
		return "no packets came"
	case diagNeighborDown:
		return "the router says that it is down"
	case diagAdminDown:
		return "ended by this side"
	}
	return ""
}

// packet is a control packet without authentication.
type packet struct {
	Diagnostic                       diagnostic
	State                            State
	Poll, Final                      bool
	Demand                           bool // periodic packets are to cease while both sides are up
	Independent                      bool // this side's forwarding outlives its control program
	Multiplier                       uint8
	My, Your                         uint32
	DesiredTransmit, RequiredReceive time.Duration
}

const (
	packetLength = 24
	version      = 1
)

const (
	flagMultipoint = 1 << iota
	flagDemand
	flagAuthentication
	flagIndependent
	flagFinal
	flagPoll
)

// marshal writes the packet.
func (p *packet) marshal() []byte {
	b := make([]byte, packetLength)
	b[0] = version<<5 | byte(p.Diagnostic)
	b[1] = byte(p.State) << 6
	for flag, set := range map[byte]bool{flagPoll: p.Poll, flagFinal: p.Final, flagIndependent: p.Independent} {
		if set {
			b[1] |= flag
		}
	}
	b[2], b[3] = p.Multiplier, packetLength
	binary.BigEndian.PutUint32(b[4:], p.My)
	binary.BigEndian.PutUint32(b[8:], p.Your)
	binary.BigEndian.PutUint32(b[12:], uint32(p.DesiredTransmit/time.Microsecond))
	binary.BigEndian.PutUint32(b[16:], uint32(p.RequiredReceive/time.Microsecond))
	return b // the last field, about echo packets, says that there are none
}

var errPacket = errors.New("read BFD packet: it is none that counts")

// parse reads a packet and refuses what RFC 5880, 6.8.6, discards.
func parse(b []byte) (packet, error) {
	if len(b) < packetLength || b[0]>>5 != version || int(b[3]) < packetLength || int(b[3]) > len(b) {
		return packet{}, errPacket
	}
	p := packet{
		Diagnostic: diagnostic(b[0] & 0x1f), State: State(b[1] >> 6), Poll: b[1]&flagPoll != 0, Final: b[1]&flagFinal != 0,
		Demand: b[1]&flagDemand != 0, Independent: b[1]&flagIndependent != 0, Multiplier: b[2], My: binary.BigEndian.Uint32(b[4:]), Your: binary.BigEndian.Uint32(b[8:]),
		DesiredTransmit: micros(b[12:]), RequiredReceive: micros(b[16:]),
	}
	switch {
	case b[1]&(flagAuthentication|flagMultipoint) != 0, p.Multiplier == 0, p.My == 0,
		p.Poll && p.Final, p.Your == 0 && p.State > Down:
		return packet{}, errPacket
	}
	return p, nil
}

func micros(b []byte) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Microsecond
}
