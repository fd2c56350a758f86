package check

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a TCP connection that ends with a reset. It is made by hand:
// ten thousand checks every two seconds are as many calls of the kernel, and
// package net makes six more for each than a check needs.
type connection struct {
	*os.File
	to netip.AddrPort
}

// connect makes a connection. speaks says that this side has the first word.
func connect(to netip.AddrPort, speaks bool, deadline time.Time) (connection, error) {
	address, family, err := socketAddress(to)
	if err != nil {
		return connection{}, err
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return connection{}, fmt.Errorf("open socket: %w", err)
	}
	// The connection ends with a reset: thousands of checks a second must not
	// leave as many sockets in TIME_WAIT.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return connection{}, errors.Join(fmt.Errorf("set linger: %w", err), unix.Close(fd))
	}
	if speaks {
		// The last packet of the handshake waits for the request that follows at
		// once: one packet less with each check. Without this there is one more.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	}
	if err := begin(fd, address); err != nil {
		return connection{}, errors.Join(err, unix.Close(fd))
	}
	c := connection{File: os.NewFile(uintptr(fd), ""), to: to}
	if err := c.established(deadline); err != nil {
		c.close()
		return connection{}, err
	}
	return c, nil
}

// begin sends the first packet of the handshake. It waits for no answer; a
// signal doesn't end it either.
func begin(fd int, address unix.Sockaddr) error {
	err := unix.Connect(fd, address)
	if err == nil || errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}

// established waits until the handshake has ended, one way or the other.
func (c connection) established(deadline time.Time) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var outcome error
	err = raw.Write(func(fd uintptr) (ended bool) {
		ended, outcome = handshake(int(fd))
		return ended
	})
	return errors.Join(err, outcome)
}

// handshake reports whether a handshake has ended, and with which error.
func handshake(fd int) (ended bool, err error) {
	other, err := unix.Getpeername(fd)
	if errors.Is(err, unix.ENOTCONN) {
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = syscall.Errno(code)
		}
		return err != nil, err
	}
	if err != nil {
		return true, err
	}
	// With itself a socket connects although nobody listens, where the kernel
	// chose the very port that is asked (RFC 9293 section 3.5, simultaneous open).
	own, err := unix.Getsockname(fd)
	if err == nil && same(own, other) {
		err = syscall.ECONNREFUSED
	}
	return true, err
}

func same(a, b unix.Sockaddr) bool {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		b, ok := b.(*unix.SockaddrInet4)
		return ok && a.Port == b.Port && a.Addr == b.Addr
	case *unix.SockaddrInet6:
		b, ok := b.(*unix.SockaddrInet6)
		return ok && a.Port == b.Port && a.Addr == b.Addr
	}
	return false
}

func socketAddress(to netip.AddrPort) (unix.Sockaddr, int, error) {
	a := to.Addr().Unmap()
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: a.As4()}, unix.AF_INET, nil
	}
	address := &unix.SockaddrInet6{Port: int(to.Port()), Addr: a.As16()}
	if zone := a.Zone(); zone != "" {
		index, err := strconv.ParseUint(zone, 10, 32)
		if err != nil {
			i, err := net.InterfaceByName(zone)
			if err != nil {
				return nil, 0, fmt.Errorf("zone %s: %w", zone, err)
			}
			index = uint64(i.Index)
		}
		address.ZoneId = uint32(index)
	}
	return address, unix.AF_INET6, nil
}

// LocalAddr is part of net.Conn. Nobody asks.
func (c connection) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is whom the connection is to.
func (c connection) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// close ends the connection. That it can't be ended well says nothing about the
// endpoint.
func (c connection) close() { _ = c.Close() }
