package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
)

// Attempt is a connection to be made whose source port is known beforehand.
type Attempt struct {
	proto model.Protocol
	to    netip.AddrPort
	port  uint16
	fd    int
}

// ErrNoAnswer says that nothing came back in time.
var ErrNoAnswer = errors.New("nothing came back in time")

// NewAttempt prepares a connection of TCP, or a datagram of UDP, from a network
// namespace. The caller closes it.
func NewAttempt(from *netns.NS, proto model.Protocol, to netip.AddrPort) (*Attempt, error) {
	return NewAttemptAt(from, 0, proto, to)
}

// NewAttemptAt is NewAttempt from a port; the kernel chooses it if it is 0.
func NewAttemptAt(from *netns.NS, port uint16, proto model.Protocol, to netip.AddrPort) (*Attempt, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	switch proto {
	case model.TCP:
	case model.UDP:
		kind = unix.SOCK_DGRAM
	default:
		return nil, fmt.Errorf("make a connection: %s can't be sent, only tcp and udp", proto)
	}
	a := &Attempt{proto: proto, to: to, fd: -1}
	err := from.Do(func() (err error) {
		a.fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err == nil {
		err = a.bind(family, port)
	}
	if err == nil {
		err = a.hearWhy()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a connection: %w", err), a.Close())
	}
	return a, nil
}

// bind has the kernel give the socket a port.
func (a *Attempt) bind(family int, port uint16) error {
	var any unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family == unix.AF_INET6 {
		any = &unix.SockaddrInet6{Port: int(port)}
	}
	if err := unix.Bind(a.fd, any); err != nil {
		return os.NewSyscallError("bind", err)
	}
	a.port = a.local().Port()
	return nil
}

// local is the socket's own address.
func (a *Attempt) local() netip.AddrPort {
	name, err := unix.Getsockname(a.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch s := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// Port is the source port.
func (a *Attempt) Port() uint16 { return a.port }

// Client is the source, which is whole once it was made.
func (a *Attempt) Client() netip.AddrPort { return a.local() }

// Make makes the connection, and waits for the answer. The error is ErrNoAnswer,
// that of ctx, or what the kernel answered, such as ECONNREFUSED.
func (a *Attempt) Make(ctx context.Context, wait time.Duration) error {
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(a.to.Port()), Addr: a.to.Addr().As16()}
	if a.to.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(a.to.Port()), Addr: a.to.Addr().As4()}
	}
	if err := unix.Connect(a.fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	events := int16(unix.POLLOUT)
	if a.proto == model.UDP {
		if _, err := unix.Write(a.fd, []byte("fairway trace\n")); err != nil {
			return err
		}
		events = unix.POLLIN
	}
	if err := a.poll(ctx, wait, events); err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(a.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		return a.why(unix.Errno(code))
	}
	return err
}

// poll waits for events of the socket.
func (a *Attempt) poll(ctx context.Context, wait time.Duration, events int16) error {
	const slice = 50 * time.Millisecond // so that ctx is heeded
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(a.fd), Events: events}}, int(slice.Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ErrNoAnswer
}

// Close ends the connection.
func (a *Attempt) Close() error {
	if a.fd < 0 {
		return nil
	}
	fd := a.fd
	a.fd = -1
	return unix.Close(fd)
}
