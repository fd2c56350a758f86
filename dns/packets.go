package dns

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// packets is the UDP socket of a CoreDNS server. It answers directly what it
// can, many packets with one system call each way, and the server reads only
// the others from it.
type packets struct {
	*net.UDPConn
	raw       syscall.RawConn
	index     *Index
	counters  *counters // nil counts nothing
	ednsLimit uint16

	in      [batch]datagram
	headers [batch]mmsghdr // of in
	left    []*datagram    // those that the server is still to read
	out     [batch]answer
	sent    [batch]mmsghdr // of out
	toSend  []mmsghdr      // of sent
	// Made once, since they would be allocated on every call.
	receive, send func(uintptr) bool
	err           error // theirs
}

// newPackets takes a socket over. One that is bound to all addresses answers
// from the address that it was asked at.
func newPackets(conn *net.UDPConn, index *Index, counters *counters, ednsLimit uint16) (*packets, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("use UDP socket: %w", err)
	}
	c := &packets{UDPConn: conn, raw: raw, index: index, counters: counters, ednsLimit: ednsLimit}
	if conn.LocalAddr().(*net.UDPAddr).IP.IsUnspecified() {
		if err := c.control(receiveDestination); err != nil {
			return nil, fmt.Errorf("have the kernel tell where questions were sent to: %w", err)
		}
	}
	// Bursts are short; what the kernel has by default holds 250 questions.
	if err := conn.SetReadBuffer(1 << 20); err != nil {
		return nil, fmt.Errorf("set receive buffer: %w", err)
	}
	c.receive, c.send = c.receiveOn, c.sendOn
	for i := range batch {
		c.in[i].prepare(&c.headers[i])
		c.out[i].prepare(&c.sent[i])
	}
	return c, nil
}

// control calls fn with the socket's file descriptor.
func (c *packets) control(fn func(fd int) error) error {
	var err error
	if outer := c.raw.Control(func(fd uintptr) { err = fn(int(fd)) }); outer != nil {
		return outer
	}
	return err
}

func receiveDestination(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return err
	}
	if domain == unix.AF_INET {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// ReadFrom returns the next packet that couldn't be answered directly.
func (c *packets) ReadFrom(p []byte) (int, net.Addr, error) {
	for len(c.left) == 0 {
		if err := c.round(); err != nil {
			return 0, nil, err
		}
	}
	d := c.left[0]
	c.left = c.left[1:]
	return copy(p, d.packet()), d.origin(), nil
}

// WriteTo answers somebody whose packet ReadFrom has returned.
func (c *packets) WriteTo(p []byte, to net.Addr) (int, error) {
	o, ok := to.(*origin)
	if !ok {
		return 0, fmt.Errorf("answer %v: %w", to, errors.ErrUnsupported)
	}
	n, _, err := c.WriteMsgUDP(p, o.control, o.UDPAddr)
	return n, err
}

// round takes a batch of packets and answers what it can of it.
func (c *packets) round() error {
	for i := range c.in {
		c.in[i].reset()
	}
	if err := c.raw.Read(c.receive); err != nil {
		return err // as it is: the server looks whether it is a timeout
	}
	if c.err != nil {
		return c.err
	}
	began := time.Now()
	c.answerAll()
	if len(c.toSend) == 0 {
		return nil
	}
	n := len(c.toSend)
	err := c.raw.Write(c.send)
	if c.counters != nil {
		c.counters.took(n, time.Since(began))
	}
	return err
}

// answerAll sorts what was received into answers and what is left.
func (c *packets) answerAll() {
	received := c.left
	c.left = c.left[:0]
	n := 0
	c.index.mu.RLock()
	defer c.index.mu.RUnlock()
	for _, d := range received {
		client := d.client().Addr().Unmap()
		a := &c.out[n]
		var q asked
		var ok bool
		if a.packet, q, ok = c.index.direct(a.buffer[:0], d.packet(), client, c.ednsLimit); !ok {
			c.left = append(c.left, d)
			continue
		}
		a.to(d)
		n++
		if c.counters != nil {
			c.counters.count(q, client, len(d.packet()), len(a.packet))
		}
	}
	c.toSend = c.sent[:n]
}

// drain makes the kernel give new packets to other sockets at the same address,
// and waits until those that this one has are read, but not for ever. (A
// connected socket gets its peer's packets only, and can answer others still.)
func (c *packets) drain() error {
	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := c.control(func(fd int) error { return connectToSelf(fd, local) }); err != nil {
		return fmt.Errorf("turn UDP socket %s away from clients: %w", local, err)
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		waiting := 0
		err := c.control(func(fd int) (err error) {
			waiting, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
			return err
		})
		if err != nil {
			return fmt.Errorf("ask for packets waiting at %s: %w", local, err)
		}
		if waiting == 0 {
			return nil
		}
	}
	return nil
}
