package planes

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/echo"
	"github.com/fairway-net/fairway/model"
)

// connect opens a connection, or a connected UDP socket, from the host. SCTP
// sockets are of one-to-one style (RFC 6458, section 4), which Go's net package
// takes for TCP ones: they behave like them.
func (s *Topology) connect(p Probe, wait time.Duration) (net.Conn, error) {
	family, to := sockaddr(p.To)
	kind := unix.SOCK_STREAM
	if p.Proto == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := s.socket(p.From, family, kind, int(p.Proto))
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), p.Proto.String())
	defer f.Close()
	if p.Proto == model.SCTP {
		if err := errors.Join(reportICMP(fd, family), echo.KeepToOnePath(fd)); err != nil {
			return nil, err
		}
	}
	if err := bind(fd, family, p.FromAddr, p.FromPort); err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		return nil, os.NewSyscallError("connect", err)
	}
	if err := waitConnected(fd, wait); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// bind gives a socket an address and a port, which others of other destinations
// may have too.
func bind(fd, family int, addr netip.Addr, port uint16) error {
	if port == 0 && !addr.IsValid() {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	switch {
	case addr.IsValid():
	case family == unix.AF_INET6:
		addr = netip.IPv6Unspecified()
	default:
		addr = netip.IPv4Unspecified()
	}
	_, from := sockaddr(netip.AddrPortFrom(addr, port))
	return os.NewSyscallError("bind", unix.Bind(fd, from))
}

// socket makes a non-blocking socket in the host's namespace, and, if the host
// is or runs on the node, in the node's cgroup: that is where eBPF programs for
// sockets look, whoever uses the socket later.
func (s *Topology) socket(from Host, family, kind, proto int) (fd int, err error) {
	kind |= unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	if from.Node == NodeName && s.sockets != nil {
		return s.sockets.Make(s.hosts[from.Name].NS.Name(), family, kind, proto)
	}
	err = s.hosts[from.Name].Do(func() error {
		fd, err = unix.Socket(family, kind, proto)
		return os.NewSyscallError("socket", err)
	})
	return fd, err
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
