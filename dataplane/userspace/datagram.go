package userspace

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// datagram is one that was received, of any size there is.
type datagram struct {
	from   netip.AddrPort
	length int
	buffer [65535]byte
}

var datagrams = sync.Pool{New: func() any { return new(datagram) }}

func (d *datagram) bytes() []byte { return d.buffer[:d.length] }

// free gives the buffer back.
func (d *datagram) free() { datagrams.Put(d) }

// receiveOne waits for a datagram, and takes a buffer only when there is one:
// sockets may be tens of thousands, most of them idle.
func receiveOne(conn *net.UDPConn) (d *datagram, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	readErr := raw.Read(func(fd uintptr) bool {
		var from unix.Sockaddr
		d = datagrams.Get().(*datagram)
		if d.length, from, err = unix.Recvfrom(int(fd), d.buffer[:], unix.MSG_DONTWAIT); err != nil {
			d.free()
			return !errors.Is(err, unix.EAGAIN)
		}
		d.from = addrPortOf(from)
		return true
	})
	return d, errors.Join(readErr, err)
}

func addrPortOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(a.Addr).Unmap()
		if a.ZoneId != 0 {
			addr = addr.WithZone(strconv.FormatUint(uint64(a.ZoneId), 10))
		}
		return netip.AddrPortFrom(addr, uint16(a.Port))
	}
	return netip.AddrPort{}
}
