package userspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairway-net/fairway/model"
)

// dialTimeout is how long a backend may take to accept before the next one is
// tried. A connection on a network that works takes one round trip.
const dialTimeout = 3 * time.Second

// tcpSocket is a listener.
type tcpSocket struct{ listener *net.TCPListener }

func (s tcpSocket) file() (*os.File, error) { return s.listener.File() }
func (s tcpSocket) close()                  { discard(s.listener.Close()) }
func (s tcpSocket) pause()                  { discard(s.listener.SetDeadline(time.Unix(1, 0))) }

// discard drops an error that only says that a socket is closed already, which
// is what was wanted of it.
func discard(error) {}

func (r *relay) listenTCP(k model.Key, inherited *os.File) (socket, error) {
	var listener net.Listener
	var err error
	if inherited != nil {
		listener, err = net.FileListener(inherited)
		discard(inherited.Close())
	} else {
		listener, err = listenConfig.Listen(context.Background(), "tcp", netip.AddrPortFrom(k.Addr, k.Port).String())
	}
	if err != nil {
		return nil, err
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("inherited a %T, not a TCP listener", listener)
	}
	s := tcpSocket{tcp}
	discard(tcp.SetDeadline(time.Time{})) // the relay before paused it
	go r.accept(k, s)
	return s, nil
}

// accept serves a listener until it is closed or paused.
func (r *relay) accept(k model.Key, s tcpSocket) {
	for {
		conn, err := s.listener.AcceptTCP()
		switch {
		case err == nil:
			go r.serveTCP(k, conn)
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		default: // out of descriptors, say: connections wait in the backlog
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// serveTCP relays one connection to its end.
func (r *relay) serveTCP(k model.Key, client *net.TCPConn) {
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	v := r.decide(k, from)
	if v.Action != model.Forward {
		reset(client)
		return
	}
	server, f := r.dial(v.Pool, from)
	if server == nil {
		reset(client)
		return
	}
	f.key = k
	f.end = sync.OnceFunc(func() { reset(client); reset(server) })
	r.flows.add(f)
	copyBoth(client, server)
	r.flows.remove(f)
	r.balancer.count(f.pool, f.backend, -1)
}

// dial connects to a backend; to another one if the first doesn't answer.
func (r *relay) dial(p *model.Pool, client netip.AddrPort) (*net.TCPConn, *flow) {
	var failed []netip.AddrPort
	for {
		backend, ok := r.balancer.pick(p, client.Addr(), failed)
		if !ok {
			return nil, nil
		}
		conn, err := net.DialTimeout("tcp", backend.String(), dialTimeout)
		if err != nil {
			failed = append(failed, backend)
			continue
		}
		r.balancer.count(p.ID, backend, 1)
		return conn.(*net.TCPConn), &flow{pool: p.ID, backend: backend, client: client}
	}
}

// copyBoth relays until both sides have said all they have. The end of one
// direction is passed on and leaves the other open.
func copyBoth(a, b *net.TCPConn) {
	var directions sync.WaitGroup
	directions.Go(func() { copyOne(b, a) })
	copyOne(a, b)
	directions.Wait()
	discard(a.Close())
	discard(b.Close())
}

// copyOne relays one direction: by splice(2), in which the kernel moves the
// bytes and waits where the receiver is slow.
func copyOne(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to) // an end that was no end must not look like one
		reset(from)
		return
	}
	discard(to.CloseWrite())
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	discard(c.SetLinger(0))
	discard(c.Close())
}
