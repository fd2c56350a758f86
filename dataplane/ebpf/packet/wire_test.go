package packet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// packet is one to be built, or one that was read. Ethernet is left out.
type packet struct {
	src, dst   netip.AddrPort
	proto      uint8
	flags      byte   // TCP's
	seq, ack   uint32 // TCP's
	first      byte   // SCTP's first chunk, or the type of ICMP
	chunkFlags byte   // of that chunk
	tag        uint32 // SCTP's
	code       byte   // of ICMP
	mtu        uint32 // the second word of ICMP
	id         uint16 // of fragments
	offset     int    // of a fragment
	more       bool   // fragments
	noSum      bool   // UDP without a checksum
	options    bool   // an IPv4 option or an IPv6 extension header
	extra      []byte // options and extension headers, as read
	body       []byte
}

const fin, syn, rst, ack = 1, 2, 4, 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bytes builds the packet with an Ethernet header.
func (p packet) bytes() []byte {
	frame := append(make([]byte, 12), 0x08, 0x00)
	copy(frame[6:], "\x02\x00\x00\x00\x00\x02") // to the loopback interface, where the kernel tests programs
	if p.src.Addr().Is6() {
		frame[12], frame[13] = 0x86, 0xdd
	}
	return append(frame, p.ip()...)
}

func (p packet) ip() []byte {
	payload := p.transport()
	if p.src.Addr().Is6() {
		return p.ip6(payload)
	}
	h := make([]byte, 20)
	if p.options {
		h = append(h, 1, 1, 1, 0) // no operation, end of list
	}
	h[0] = 0x40 | byte(len(h)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
	binary.BigEndian.PutUint16(h[4:], p.id)
	fragment := uint16(p.offset / 8)
	if p.more {
		fragment |= 0x2000
	}
	binary.BigEndian.PutUint16(h[6:], fragment)
	h[8], h[9] = 64, p.proto
	copy(h[12:], p.src.Addr().AsSlice())
	copy(h[16:], p.dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(h[10:], ^sum(h))
	return append(h, payload...)
}

func (p packet) ip6(payload []byte) []byte {
	next := p.proto
	if p.more || p.offset > 0 {
		x := []byte{next, 0, 0, 0, 0, 0, 0, 0}
		at := uint16(p.offset)
		if p.more {
			at |= 1
		}
		binary.BigEndian.PutUint16(x[2:], at)
		binary.BigEndian.PutUint16(x[6:], p.id)
		payload, next = append(x, payload...), unix.IPPROTO_FRAGMENT
	}
	if p.options {
		payload, next = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, payload...), unix.IPPROTO_DSTOPTS
	}
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = next, 64
	copy(h[8:], p.src.Addr().AsSlice())
	copy(h[24:], p.dst.Addr().AsSlice())
	return append(h, payload...)
}

func (p packet) transport() []byte {
	if p.offset > 0 {
		return p.body
	}
	var h []byte
	at := 0
	switch p.proto {
	case unix.IPPROTO_TCP:
		h, at = make([]byte, 20), 16
		binary.BigEndian.PutUint32(h[4:], p.seq)
		binary.BigEndian.PutUint32(h[8:], p.ack)
		h[12], h[13] = 5<<4, p.flags
	case unix.IPPROTO_UDP:
		h, at = make([]byte, 8), 6
		binary.BigEndian.PutUint16(h[4:], uint16(8+len(p.body)))
	case unix.IPPROTO_SCTP:
		h = make([]byte, 16)
		binary.BigEndian.PutUint32(h[4:], p.tag)
		h[12], h[13] = p.first, p.chunkFlags
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		h, at = make([]byte, 8), 2
		h[0], h[1] = p.first, p.code
		binary.BigEndian.PutUint32(h[4:], p.mtu)
	}
	if at > 0 && p.proto != unix.IPPROTO_ICMP && p.proto != unix.IPPROTO_ICMPV6 || p.proto == unix.IPPROTO_SCTP {
		binary.BigEndian.PutUint16(h, p.src.Port())
		binary.BigEndian.PutUint16(h[2:], p.dst.Port())
	}
	all := append(h, p.body...)
	switch {
	case p.proto == unix.IPPROTO_SCTP:
		binary.LittleEndian.PutUint32(all[8:], crc32.Checksum(all, castagnoli))
	case at > 0 && !p.noSum:
		binary.BigEndian.PutUint16(all[at:], ^sum(append(p.pseudo(len(all)), all...)))
	}
	return all
}

// pseudo is the pseudo-header, of which ICMP has none.
func (p packet) pseudo(n int) []byte {
	if p.proto == unix.IPPROTO_ICMP {
		return nil
	}
	h := append(p.src.Addr().AsSlice(), p.dst.Addr().AsSlice()...)
	return append(h, 0, 0, byte(n>>8), byte(n), 0, 0, 0, p.proto)
}

// sum is the ones' complement sum (RFC 1071).
func sum(b []byte) uint16 {
	var s uint32
	for i, c := range b {
		s += uint32(c) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// read reads an IP packet and checks its checksums; quoted ones are cut off,
// and their transport's checksum is nobody's business.
func read(b []byte, quoted bool) (packet, error) {
	var p packet
	if len(b) < 20 {
		return p, fmt.Errorf("%d bytes are no packet", len(b))
	}
	var payload []byte
	var src, dst netip.Addr
	if b[0]>>4 == 6 {
		src, _ = netip.AddrFromSlice(b[8:24])
		dst, _ = netip.AddrFromSlice(b[24:40])
		p.proto, payload = b[6], b[40:]
		if n := int(binary.BigEndian.Uint16(b[4:])); !quoted && n != len(payload) {
			return p, fmt.Errorf("length %d of %d bytes", n, len(payload))
		}
		for p.proto == unix.IPPROTO_DSTOPTS || p.proto == unix.IPPROTO_FRAGMENT {
			if p.proto == unix.IPPROTO_FRAGMENT {
				p.offset, p.more = int(binary.BigEndian.Uint16(payload[2:])&^7), payload[3]&1 == 1
			}
			n := 8
			if p.proto == unix.IPPROTO_DSTOPTS {
				n += 8 * int(payload[1])
			}
			p.extra = append(p.extra, payload[:n]...)
			p.proto, payload = payload[0], payload[n:]
		}
	} else {
		size := int(b[0]&15) * 4
		src, _ = netip.AddrFromSlice(b[12:16])
		dst, _ = netip.AddrFromSlice(b[16:20])
		p.proto, p.extra, payload = b[9], b[20:size], b[size:]
		if s := sum(b[:size]); s != 0xffff {
			return p, fmt.Errorf("checksum of the IP header is wrong: %x", s)
		}
		if n := int(binary.BigEndian.Uint16(b[2:])); !quoted && n != len(b) {
			return p, fmt.Errorf("length %d of %d bytes", n, len(b))
		}
		f := binary.BigEndian.Uint16(b[6:])
		p.offset, p.more = int(f&0x1fff)*8, f&0x2000 != 0
	}
	p.src, p.dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	return p, p.readTransport(payload, quoted)
}

func (p *packet) readTransport(b []byte, quoted bool) error {
	whole := !quoted && !p.more && p.offset == 0
	switch {
	case p.offset > 0:
		p.body = b
		return nil
	case p.proto == unix.IPPROTO_ICMP || p.proto == unix.IPPROTO_ICMPV6:
		p.first, p.code, p.mtu, p.body = b[0], b[1], binary.BigEndian.Uint32(b[4:]), b[8:]
	default:
		p.src = netip.AddrPortFrom(p.src.Addr(), binary.BigEndian.Uint16(b))
		p.dst = netip.AddrPortFrom(p.dst.Addr(), binary.BigEndian.Uint16(b[2:]))
	}
	switch {
	case p.proto == unix.IPPROTO_UDP:
		p.noSum = b[6] == 0 && b[7] == 0
		p.body = b[8:]
	case p.proto == unix.IPPROTO_TCP && !quoted:
		p.seq, p.ack, p.flags, p.body = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), b[13], b[20:]
	case p.proto == unix.IPPROTO_SCTP && whole:
		c := slices.Clone(b)
		clear(c[8:12])
		if want := crc32.Checksum(c, castagnoli); want != binary.LittleEndian.Uint32(b[8:]) {
			return fmt.Errorf("SCTP checksum %x, expected %x", b[8:12], want)
		}
		return nil
	}
	if s := sum(append(p.pseudo(len(b)), b...)); whole && !p.noSum && s != 0xffff {
		return fmt.Errorf("checksum of protocol %d is wrong: %x", p.proto, s)
	}
	return nil
}
