package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// ProhibitedError says that a router or firewall on the way lets nobody through.
type ProhibitedError struct {
	By netip.Addr // who says so
}

// Error implements error.
func (e *ProhibitedError) Error() string { return fmt.Sprintf("prohibited by %s", e.By) }

// hearWhy has the kernel keep the ICMP errors of the attempt: the socket's own error doesn't tell
// a firewall from a missing route (ip(7), IP_RECVERR).
func (a *Attempt) hearWhy() error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if a.to.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(a.fd, level, option, 1))
}

// The layout of struct sock_extended_err (linux/errqueue.h), which the address of who sent the
// error follows.
const (
	extendedOrigin = 4
	extendedType   = 5
	extendedCode   = 6
	extendedSize   = 16
)

// why is what the kernel kept of an error, or the error itself.
func (a *Attempt) why(failed unix.Errno) error {
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(a.fd, make([]byte, 256), control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return failed // there is nothing in the queue
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return failed
	}
	for _, m := range messages {
		if by, says := prohibits(m.Data); says {
			return &ProhibitedError{By: by}
		}
	}
	return failed
}

// prohibits reads who says "administratively prohibited" (RFC 1812 5.2.7.1, RFC 4443 3.1).
func prohibits(data []byte) (by netip.Addr, says bool) {
	if len(data) < extendedSize+unix.SizeofSockaddrInet4 {
		return by, false
	}
	kind, code, from := data[extendedType], data[extendedCode], data[extendedSize:]
	switch data[extendedOrigin] {
	case unix.SO_EE_ORIGIN_ICMP:
		says = kind == 3 && (code == 9 || code == 10 || code == 13)
	case unix.SO_EE_ORIGIN_ICMP6:
		says = kind == 1 && (code == 1 || code == 5 || code == 6)
	}
	switch family := binary.NativeEndian.Uint16(from); {
	case family == unix.AF_INET:
		by = netip.AddrFrom4([4]byte(from[4:8]))
	case family == unix.AF_INET6 && len(from) >= unix.SizeofSockaddrInet6:
		by = netip.AddrFrom16([16]byte(from[8:24]))
	}
	return by, says
}
