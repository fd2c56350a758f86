package conformance

import (
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialSCTP opens a one-to-one style SCTP association (RFC 6458, section 4). Go's
// net package takes the socket for a TCP one, which it behaves like.
func dialSCTP(to netip.AddrPort, wait time.Duration) (net.Conn, error) {
	family, address := sockaddr(to)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "sctp")
	defer f.Close()
	if err := reportICMP(fd, family); err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, address); err != nil && err != unix.EINPROGRESS {
		return nil, os.NewSyscallError("connect", err)
	}
	if err := waitConnected(fd, wait); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

func sockaddr(to netip.AddrPort) (family int, address unix.Sockaddr) {
	if to.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}

// reportICMP has ICMP errors end the connecting, which SCTP would go on with
// for minutes otherwise (ip(7), IP_RECVERR).
func reportICMP(fd, family int) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if family == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, 1))
}

func waitConnected(fd int, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			break
		}
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if code != 0 {
		return os.NewSyscallError("connect", unix.Errno(code))
	}
	return nil
}
