package program

import (
	"encoding/binary"
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// What follows is bpf/types.h in Go: the two must agree.

const (
	flagRestricted = 1 // enum frontend_flags
	flagMasquerade = 1 // enum route_flags
	flagDirect     = 2
	flagStable     = 4
	flagDrop       = 1 // enum pool_flags
	flagActive     = 1 // enum backend_flags
	flagLocal      = 2

	scopePods     = 1 // enum scope
	scopeReserved = 2
	scopeExempt   = 3
	scopeKnown4   = 5
	scopeKnown6   = 6
	scopeOfNode   = 4
	firstID       = 16

	moreSlots   = 1 << 31 // MORE
	allSlots    = 3 << 30 // ALL
	maglevPiece = 1024    // PLACES
	nameSize    = 256
	ChunkSize   = 1024
	chunks      = 4096
)

// schedulers are the numbers of enum scheduler.
var schedulers = map[model.Scheduler]uint16{
	model.Random: 0, model.RoundRobin: 1, model.WeightedRoundRobin: 2, model.LeastConnection: 3,
	model.WeightedLeastConnection: 4, model.ShortestExpectedDelay: 5, model.NeverQueue: 6,
	model.SourceHashing: 7, model.DestinationHashing: 8, model.MaglevHashing: 9,
	model.MaglevPortHashing: 10,
}

// Packer puts values behind each other as C does on this machine.
type Packer []byte

// smallSize is room for most keys and values; so much needs no allocation of its own.
const smallSize = 40

func (b Packer) u16(n uint16) Packer { return binary.NativeEndian.AppendUint16(b, n) }
func (b Packer) U32(n uint32) Packer { return binary.NativeEndian.AppendUint32(b, n) }

func (b Packer) Port(n uint16) Packer { return binary.BigEndian.AppendUint16(b, n) }

func (b Packer) Addr(a netip.Addr) Packer {
	bytes := a.As16()
	return append(b, bytes[:]...)
}

func idKey(id uint32) string { return string(make(Packer, 0, smallSize).U32(id)) }

func FrontendKey(k model.Key) string {
	return string(append(make(Packer, 0, smallSize).Addr(k.Addr).Port(k.Port), byte(k.Proto), 0))
}

func FrontendValue(id, flags uint32, routes [model.NumOrigins]model.Route, poolID func(model.PoolID) uint32) string {
	b := make(Packer, 0, smallSize).U32(id).U32(flags)
	for _, r := range routes {
		flags := uint32(0)
		if r.Masquerade {
			flags |= flagMasquerade
		}
		if r.Direct {
			flags |= flagDirect
		}
		if r.Stable {
			flags |= flagStable
		}
		b = b.U32(poolID(r.Pool)).U32(flags)
	}
	return string(b)
}

func endpointBytes(b Packer, to netip.AddrPort) Packer {
	return b.Addr(to.Addr()).Port(to.Port())
}

func SlotKey(pool, index uint32) string {
	return string(make(Packer, 0, smallSize).U32(pool).U32(index))
}

func backendValue(id uint32, b model.Backend) string {
	return string(endpointBytes(make(Packer, 0, smallSize), b.AddrPort()).u16(b.Weight).U32(id).U32(backendFlags(b, true)))
}

func backendFlags(b model.Backend, active bool) (flags uint32) {
	if active {
		flags |= flagActive
	}
	if b.Local {
		flags |= flagLocal
	}
	return flags
}

func memberKey(pool uint32, to netip.AddrPort) string {
	return string(endpointBytes(make(Packer, 0, smallSize).U32(pool), to).u16(0))
}

func memberValue(id, flags uint32) string {
	return string(make(Packer, 0, smallSize).U32(id).U32(flags))
}

func prefixKey(scope uint32, p netip.Prefix) string {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return string(make(Packer, 0, smallSize).U32(uint32(32 + bits)).U32(scope).Addr(p.Masked().Addr()))
}

func nameValue(text string) string {
	b := make([]byte, nameSize)
	copy(b[:nameSize-1], text)
	return string(b)
}

// Unpacker takes such bytes apart.
type Unpacker string

func (b *Unpacker) take(n int) string {
	s := string((*b)[:n])
	*b = (*b)[n:]
	return s
}

func (b *Unpacker) u16() uint16 { return binary.NativeEndian.Uint16([]byte(b.take(2))) }
func (b *Unpacker) U32() uint32 { return binary.NativeEndian.Uint32([]byte(b.take(4))) }
func (b *Unpacker) U64() uint64 { return binary.NativeEndian.Uint64([]byte(b.take(8))) }
func (b *Unpacker) u8() uint8   { return b.take(1)[0] }

func (b *Unpacker) port() uint16 { return binary.BigEndian.Uint16([]byte(b.take(2))) }

func (b *Unpacker) addr() netip.Addr {
	return netip.AddrFrom16([16]byte([]byte(b.take(16)))).Unmap()
}

func (b *Unpacker) Endpoint() netip.AddrPort {
	addr := b.addr()
	return netip.AddrPortFrom(addr, b.port())
}

func (b *Unpacker) Key() model.Key {
	to := b.Endpoint()
	k := model.Key{Addr: to.Addr(), Port: to.Port(), Proto: model.Protocol(b.u8())}
	b.take(1)
	return k
}
