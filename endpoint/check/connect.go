package check

import (
	"net"
	"net/netip"
	"syscall"
	"time"
)

// connection is a connection that ends with a reset.
type connection struct{ *net.TCPConn }

// connect makes a connection. speaks says that this side has the first word.
func connect(to netip.AddrPort, speaks bool, deadline time.Time) (connection, error) {
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1, FallbackDelay: -1}
	dialer.SetMultipathTCP(false)
	if speaks {
		dialer.Control = acknowledgeWithData
	}
	c, err := dialer.Dial("tcp", to.String())
	if err != nil {
		return connection{}, err
	}
	tcp := connection{c.(*net.TCPConn)}
	if err := tcp.SetDeadline(deadline); err != nil {
		tcp.close()
		return connection{}, err
	}
	return tcp, nil
}

// acknowledgeWithData has the last packet of the handshake wait for the request
// that follows at once: one packet less with each check.
func acknowledgeWithData(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// Without it there is a packet more.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 0)
	})
}

// close ends the connection. That it can't be ended well says nothing about the
// endpoint.
func (c connection) close() {
	_ = c.SetLinger(0)
	_ = c.Close()
}
