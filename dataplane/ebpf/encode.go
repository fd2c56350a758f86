package ebpf

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

	moreSlots  = 1 << 31 // MORE
	maglevSize = 2039
	nameSize   = 256
	chunkSize  = 1024
	chunks     = 4096
)

// schedulers are the numbers of enum scheduler.
var schedulers = map[model.Scheduler]uint16{
	model.Random: 0, model.RoundRobin: 1, model.WeightedRoundRobin: 2, model.LeastConnection: 3,
	model.WeightedLeastConnection: 4, model.ShortestExpectedDelay: 5, model.NeverQueue: 6,
	model.SourceHashing: 7, model.DestinationHashing: 8, model.MaglevHashing: 9,
}

// packer puts values behind each other as C does on this machine.
type packer []byte

// small is room for most keys and values; so much needs no allocation of its own.
const small = 40

func (b packer) u16(n uint16) packer { return binary.NativeEndian.AppendUint16(b, n) }
func (b packer) u32(n uint32) packer { return binary.NativeEndian.AppendUint32(b, n) }

func (b packer) port(n uint16) packer { return binary.BigEndian.AppendUint16(b, n) }

func (b packer) addr(a netip.Addr) packer {
	bytes := a.As16()
	return append(b, bytes[:]...)
}

func idKey(id uint32) string { return string(make(packer, 0, small).u32(id)) }

func frontendKey(k model.Key) string {
	return string(append(make(packer, 0, small).addr(k.Addr).port(k.Port), byte(k.Proto), 0))
}

func frontendValue(id, flags uint32, routes [model.NumOrigins]model.Route, poolID func(model.PoolID) uint32) string {
	b := make(packer, 0, small).u32(id).u32(flags)
	for _, r := range routes {
		flags := uint32(0)
		if r.Masquerade {
			flags |= flagMasquerade
		}
		if r.Direct {
			flags |= flagDirect
		}
		b = b.u32(poolID(r.Pool)).u32(flags)
	}
	return string(b)
}

func endpointBytes(b packer, to netip.AddrPort) packer {
	return b.addr(to.Addr()).port(to.Port())
}

func slotKey(pool, index uint32) string { return string(make(packer, 0, small).u32(pool).u32(index)) }

func backendValue(id uint32, b model.Backend) string {
	return string(endpointBytes(make(packer, 0, small), b.AddrPort()).u16(b.Weight).u32(id).u32(backendFlags(b, true)))
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
	return string(endpointBytes(make(packer, 0, small).u32(pool), to).u16(0))
}

func memberValue(id, flags uint32) string { return string(make(packer, 0, small).u32(id).u32(flags)) }

func prefixKey(scope uint32, p netip.Prefix) string {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return string(make(packer, 0, small).u32(uint32(32 + bits)).u32(scope).addr(p.Masked().Addr()))
}

func nameValue(text string) string {
	b := make([]byte, nameSize)
	copy(b[:nameSize-1], text)
	return string(b)
}

// unpacker takes such bytes apart.
type unpacker string

func (b *unpacker) take(n int) string {
	s := string((*b)[:n])
	*b = (*b)[n:]
	return s
}

func (b *unpacker) u16() uint16 { return binary.NativeEndian.Uint16([]byte(b.take(2))) }
func (b *unpacker) u32() uint32 { return binary.NativeEndian.Uint32([]byte(b.take(4))) }
func (b *unpacker) u64() uint64 { return binary.NativeEndian.Uint64([]byte(b.take(8))) }
func (b *unpacker) u8() uint8   { return b.take(1)[0] }

func (b *unpacker) port() uint16 { return binary.BigEndian.Uint16([]byte(b.take(2))) }

func (b *unpacker) addr() netip.Addr {
	return netip.AddrFrom16([16]byte([]byte(b.take(16)))).Unmap()
}

func (b *unpacker) endpoint() netip.AddrPort {
	addr := b.addr()
	return netip.AddrPortFrom(addr, b.port())
}

func (b *unpacker) key() model.Key {
	to := b.endpoint()
	k := model.Key{Addr: to.Addr(), Port: to.Port(), Proto: model.Protocol(b.u8())}
	b.take(1)
	return k
}
