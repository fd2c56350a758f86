package check

import (
	"net"
	"net/netip"
	"time"
)

// connection is a connection that ends with a reset.
type connection struct{ *net.TCPConn }

func connect(to netip.AddrPort, deadline time.Time) (connection, error) {
	dialer := net.Dialer{Deadline: deadline, KeepAlive: -1, FallbackDelay: -1}
	dialer.SetMultipathTCP(false)
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

// close ends the connection. That it can't be ended well says nothing about the
// endpoint.
func (c connection) close() {
	_ = c.SetLinger(0)
	_ = c.Close()
}
