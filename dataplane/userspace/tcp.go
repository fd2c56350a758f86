package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	flowevent "github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// dialTimeout is how long a backend may take to accept before the next one is
// tried. A connection on a network that works takes one round trip.
const dialTimeout = 3 * time.Second

// dialAllTimeout is how long others are tried in all. A client is refused after it: by then
// most have given up. Those that refuse at once take none of it.
const dialAllTimeout = 15 * time.Second

// tcpSocket is a listener.
type tcpSocket struct {
	relay    *relay
	key      model.Key
	listener *net.TCPListener
	done     chan struct{} // closed when nobody accepts any more
}

func (r *relay) listenTCP(k model.Key, inherited *os.File) (socket, error) {
	listener, err := open[*net.TCPListener](inherited, net.FileListener, func() (net.Listener, error) {
		return listenConfig.Listen(context.Background(), "tcp", netip.AddrPortFrom(k.Addr, k.Port).String())
	})
	if err != nil {
		return nil, err
	}
	s := &tcpSocket{relay: r, key: k, listener: listener}
	s.thaw()
	return s, nil
}

func (s *tcpSocket) conn() syscall.Conn { return s.listener }
func (s *tcpSocket) close()             { discard(s.listener.Close()) }

func (s *tcpSocket) freeze() {
	discard(s.listener.SetDeadline(time.Unix(1, 0)))
	<-s.done
}

func (s *tcpSocket) thaw() {
	discard(s.listener.SetDeadline(time.Time{}))
	s.done = make(chan struct{})
	go s.accept(s.done)
}

// discard drops an error that only says that a socket is closed already, which
// is what was wanted of it.
func discard(error) {}

// accept serves a listener until it is closed or frozen.
func (s *tcpSocket) accept(done chan<- struct{}) {
	defer close(done)
	for {
		conn, err := s.listener.AcceptTCP()
		switch {
		case err == nil:
			s.relay.flows.begin()
			go s.relay.serveTCP(s.key, conn)
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		default: // out of descriptors, say: connections wait in the backlog
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// serveTCP relays one connection to its end.
func (r *relay) serveTCP(k model.Key, client *net.TCPConn) {
	defer r.flows.finish()
	from := client.RemoteAddr().(*net.TCPAddr).AddrPort()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	v, count := r.decide(k, from), r.traffic.of(k)
	if v.Action != model.Forward {
		count.refused.Add(1)
		r.watchers.rejected(k, from, v.Action, v.Reason.String())
		reset(client)
		return
	}
	server, f := r.dial(v, from)
	if server == nil {
		count.refused.Add(1)
		r.watchers.rejected(k, from, model.Refuse, "no endpoint has accepted the connection")
		reset(client)
		return
	}
	count.connections.Add(1)
	f.key = k
	f.end = sync.OnceFunc(func() { reset(client); reset(server) })
	f.began = time.Now()
	r.flows.add(f)
	r.watchers.send(func() flowevent.Event { return f.event(flowevent.Began) })
	r.recheck(f, v.Pool)
	in, out := copyBoth(client, server, count)
	r.flows.remove(f)
	r.watchers.send(func() flowevent.Event {
		e := f.event(flowevent.Ended)
		e.Counted, e.In, e.Out = true, in, out
		return e
	})
	r.balancer.count(f.pool, f.backend, -1)
}

// dial connects to a backend; to another one if the first doesn't answer.
func (r *relay) dial(v model.Verdict, client netip.AddrPort) (*net.TCPConn, *flow) {
	var failed []netip.AddrPort
	for began := time.Now(); ; {
		backend, ok := r.balancer.pick(v.Pool, v.Src, failed)
		if !ok || time.Since(began) > r.dialAllTimeout {
			return nil, nil
		}
		conn, err := r.reach("tcp", v, backend)
		if err != nil {
			failed = append(failed, backend)
			continue
		}
		r.balancer.count(v.Pool.ID, backend, 1)
		return conn.(*net.TCPConn), &flow{pool: v.Pool.ID, backend: backend, client: client}
	}
}

// copyBoth relays until both sides have said all they have, and tells how much that was.
// The end of one direction is passed on and leaves the other open.
func copyBoth(client, server *net.TCPConn, count *counter) (in, out uint64) {
	var directions sync.WaitGroup
	directions.Go(func() { in = copyOne(server, client, &count.in) })
	out = copyOne(client, server, &count.out)
	directions.Wait()
	discard(client.Close())
	discard(server.Close())
	return in, out
}

// copyOne relays one direction: by splice(2), in which the kernel moves the
// bytes and waits where the receiver is slow.
func copyOne(to, from *net.TCPConn, count *atomic.Uint64) (all uint64) {
	for {
		n, err := waiting(from)
		if err == nil {
			n, err = io.CopyN(to, from, n)
			count.Add(uint64(n))
			all += uint64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			discard(to.CloseWrite())
			return all
		case err != nil:
			reset(to) // an end that was no end must not look like one
			reset(from)
			return all
		}
	}
}

// waiting waits for something to read and tells how much there is. A copy of
// just that much gives its pipe back, so that connections which are idle cost
// two descriptors and not six.
func waiting(from *net.TCPConn) (n int64, err error) {
	raw, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := raw.Read(func(fd uintptr) bool {
		var first [1]byte
		var got, queued int
		if got, _, err = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); err != nil {
			return !errors.Is(err, unix.EAGAIN)
		}
		if got == 0 {
			err = io.EOF
			return true
		}
		queued, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		n = int64(max(queued, 1)) // 0 before urgent data
		return true
	})
	if readErr != nil {
		return 0, readErr
	}
	return n, err
}

// reset closes a connection with a RST.
func reset(c *net.TCPConn) {
	discard(c.SetLinger(0))
	discard(c.Close())
}
