package dns

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batch is how many packets are taken at once. There are as many when the
	// server is busy, and one when it isn't.
	batch = 32
	// maxQuestion is more than any question has: a name, and some options.
	maxQuestion = 1232
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr    unix.Msghdr
	length uint32
}

// datagram is a received packet, with whom it is from.
type datagram struct {
	header  *mmsghdr
	iov     unix.Iovec
	name    unix.RawSockaddrInet6 // or a RawSockaddrInet4
	control [64]byte              // has room for the address it was sent to
	data    [maxQuestion]byte
}

// answer is a packet to be sent.
type answer struct {
	header *mmsghdr
	iov    unix.Iovec
	packet []byte // in buffer
	buffer [2 * directMax]byte
}

func (d *datagram) prepare(header *mmsghdr) {
	d.header = header
	d.iov.Base = &d.data[0]
	d.iov.SetLen(len(d.data))
	h := &header.hdr
	h.Name, h.Iov, h.Control = (*byte)(unsafe.Pointer(&d.name)), &d.iov, &d.control[0]
	h.SetIovlen(1)
}

// reset makes it ready to receive again.
func (d *datagram) reset() {
	d.header.hdr.Namelen = unix.SizeofSockaddrInet6
	d.header.hdr.SetControllen(len(d.control))
}

func (d *datagram) packet() []byte { return d.data[:d.header.length] }

// client is whom it is from.
func (d *datagram) client() netip.AddrPort {
	port := (*[2]byte)(unsafe.Pointer(&d.name.Port)) // at the same place for IPv4
	number := binary.BigEndian.Uint16(port[:])
	if d.name.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&d.name)).Addr), number)
	}
	a := netip.AddrFrom16(d.name.Addr)
	if d.name.Scope_id != 0 {
		a = a.WithZone(strconv.Itoa(int(d.name.Scope_id)))
	}
	return netip.AddrPortFrom(a, number)
}

// prepareControl makes what the kernel says about where the packet was sent to
// what tells it where to answer from: the interface is left to the routes
// (ip(7), in_pktinfo; RFC 3542, section 6).
func (d *datagram) prepareControl() []byte {
	control := d.control[:d.header.hdr.Controllen]
	if len(control) < unix.SizeofCmsghdr {
		return nil
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	switch at := unix.CmsgLen(0); {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(control) >= unix.CmsgSpace(unix.SizeofInet4Pktinfo):
		clear(control[at : at+4]) // ipi_ifindex comes first
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(control) >= unix.CmsgSpace(unix.SizeofInet6Pktinfo):
		if d.name.Scope_id == 0 {
			clear(control[at+16 : at+20]) // ipi6_ifindex comes last
		}
	default:
		return nil
	}
	return control
}

// origin is a client's address, with the one of this machine's that it asked: a DNS
// server answers to the address that it got with the question.
type origin struct {
	*net.UDPAddr
	control []byte
}

// Unwrap gives the address by itself, to CoreDNS's plugins, which tell by it how the
// question came.
func (o *origin) Unwrap() net.Addr { return o.UDPAddr }

func (d *datagram) origin() *origin {
	client := d.client()
	o := &origin{UDPAddr: net.UDPAddrFromAddrPort(client)}
	o.control = append(o.control, d.prepareControl()...)
	return o
}

func (a *answer) prepare(header *mmsghdr) {
	a.header = header
	header.hdr.Iov = &a.iov
	header.hdr.SetIovlen(1)
}

// to addresses it to where a question came from.
func (a *answer) to(d *datagram) {
	a.iov.Base = &a.packet[0]
	a.iov.SetLen(len(a.packet))
	h := &a.header.hdr
	h.Name, h.Namelen = d.header.hdr.Name, d.header.hdr.Namelen
	h.Control = nil
	h.SetControllen(0)
	if control := d.prepareControl(); control != nil {
		h.Control = &control[0]
		h.SetControllen(len(control))
	}
}

// receiveOn fills left with what has arrived.
func (c *packets) receiveOn(fd uintptr) bool {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&c.headers[0])), batch, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		case 0:
			c.left, c.err = c.left[:0], nil
			for i := range int(n) {
				c.left = append(c.left, &c.in[i])
			}
		default: // ICMP errors are not told to sockets like this one
			c.err = errno
		}
		return true
	}
}

// sendOn sends all that is to be sent. What can't be isn't: the client will ask
// again.
func (c *packets) sendOn(fd uintptr) bool {
	for len(c.toSend) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&c.toSend[0])), uintptr(len(c.toSend)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			c.toSend = c.toSend[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			c.toSend = c.toSend[1:]
		}
	}
	return true
}

// connectToSelf connects a UDP socket to its own address, or to the loopback's
// if it has none in particular.
func connectToSelf(fd int, local netip.AddrPort) error {
	to := local.Addr()
	if to.IsUnspecified() && to.Is4() {
		to = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	} else if to.IsUnspecified() {
		to = netip.IPv6Loopback()
	}
	if to.Is4() || to.Is4In6() {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: to.As4()})
	}
	return unix.Connect(fd, &unix.SockaddrInet6{Port: int(local.Port()), Addr: to.As16()})
}
