package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	flowevent "github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// maxClients bounds the clients of one listener: each costs a descriptor.
// Datagrams of more are dropped, as a full conntrack table drops them.
const maxClients = 16384

// udpSocket is a listener and the sessions of its clients.
type udpSocket struct {
	relay    *relay
	key      model.Key
	listener *net.UDPConn
	count    *counter
	done     chan struct{}  // closed when nobody takes datagrams in any more
	answers  sync.WaitGroup // the sessions that may still have something to pass on

	mu       sync.Mutex
	sessions map[netip.AddrPort]*session
	closed   bool // no more sessions
}

func (r *relay) listenUDP(k model.Key, inherited *os.File) (socket, error) {
	conn, err := open[*net.UDPConn](inherited, net.FilePacketConn, func() (net.PacketConn, error) {
		return listenConfig.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(k.Addr, k.Port).String())
	})
	if err != nil {
		return nil, err
	}
	s := &udpSocket{relay: r, key: k, listener: conn, count: r.traffic.of(k), sessions: map[netip.AddrPort]*session{}}
	// Before anything is received, or a datagram that has waited would begin another
	// session of its client's.
	for _, h := range r.inheritedSessions[k] {
		s.begin(h.flow, h.conn)
	}
	delete(r.inheritedSessions, k)
	s.thaw()
	return s, nil
}

func (s *udpSocket) conn() syscall.Conn { return s.listener }

func (s *udpSocket) freeze() {
	discard(s.listener.SetReadDeadline(time.Unix(1, 0)))
	<-s.done
}

func (s *udpSocket) thaw() {
	discard(s.listener.SetReadDeadline(time.Time{}))
	s.done = make(chan struct{})
	go s.receive(s.done)
}

// close ends the sessions, too; what backends have said until now is passed on.
func (s *udpSocket) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, x := range s.all() {
		x.end()
	}
	s.answers.Wait()
	discard(s.listener.Close())
}

func (s *udpSocket) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.sessions))
	for _, x := range s.sessions {
		all = append(all, x)
	}
	return all
}

// receive takes in clients' datagrams until the socket is closed or frozen.
func (s *udpSocket) receive(done chan<- struct{}) {
	defer close(done)
	for {
		d, err := receiveOne(s.listener)
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil: // an ICMP error about an answer of ours
			continue
		}
		if x := s.session(d); x != nil {
			s.count.in.Add(uint64(len(d.bytes())))
			x.passOn(d)
		}
		d.free()
	}
}

// session finds the session that a datagram belongs to or begins one; nil if the
// table has no backend for it. Only receive calls it, so that no client begins two; the lock
// is not held while the table is asked, whose changes end sessions.
func (s *udpSocket) session(d *datagram) *session {
	client := d.from
	s.mu.Lock()
	x, full := s.sessions[client], len(s.sessions) >= maxClients
	s.mu.Unlock()
	if x != nil || full {
		return x
	}
	v := s.relay.decide(s.key, client)
	if v.Action == model.Refuse {
		discard(refuse(s.key, client, d.length)) // a datagram lost is a datagram lost
	}
	if v.Action != model.Forward {
		s.count.refused.Add(1)
		s.relay.watchers.rejected(s.key, client, v.Action, v.Reason.String())
		return nil
	}
	backend, ok := s.relay.balancer.pick(v.Pool, v.Src, nil)
	if !ok {
		s.count.refused.Add(1)
		return nil
	}
	conn, err := s.relay.reach("udp", v, backend)
	if err != nil {
		return nil
	}
	x = s.begin(flow{key: s.key, pool: v.Pool.ID, backend: backend, client: client}, conn.(*net.UDPConn))
	if x != nil {
		s.count.connections.Add(1)
		s.relay.recheck(&x.flow, v.Pool)
	}
	return x
}

// begin registers a session; nil if the socket is closed.
func (s *udpSocket) begin(f flow, conn *net.UDPConn) *session {
	x := &session{flow: f, conn: conn}
	x.began, x.replied = time.Now(), &x.answered
	x.used()
	x.end = sync.OnceFunc(func() { discard(conn.Close()); s.forget(x) })
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		discard(conn.Close())
		return nil
	}
	s.sessions[f.client] = x
	s.answers.Add(1)
	s.mu.Unlock()
	s.relay.balancer.count(f.pool, f.backend, 1)
	s.relay.flows.begin()
	s.relay.flows.add(&x.flow)
	s.relay.watchers.send(func() flowevent.Event { return x.event(flowevent.Began) })
	go s.answer(x)
	return x
}

// forget drops a session, so that the client's next datagram begins another.
func (s *udpSocket) forget(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[x.client] == x {
		delete(s.sessions, x.client)
	}
}

// answer passes on what a backend says, until the session ends or is idle for
// too long.
func (s *udpSocket) answer(x *session) {
	defer func() {
		x.end()
		s.relay.flows.remove(&x.flow)
		s.relay.watchers.send(func() flowevent.Event { return x.event(flowevent.Ended) })
		s.relay.balancer.count(x.pool, x.backend, -1)
		s.relay.flows.finish()
		s.answers.Done()
	}()
	for {
		if err := x.conn.SetReadDeadline(x.expires(s.relay)); err != nil {
			return
		}
		d, err := receiveOne(x.conn)
		switch {
		case err == nil:
			x.answered.Store(true)
			x.used()
			s.count.out.Add(uint64(len(d.bytes())))
			_, err := s.listener.WriteToUDPAddrPort(d.bytes(), x.client)
			discard(err) // a datagram lost is a datagram lost
			d.free()
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !time.Now().Before(x.expires(s.relay)) {
				return
			}
		case errors.Is(err, syscall.ECONNREFUSED): // nobody listens there now; the client is not told, as by kube-proxy
		default:
			return
		}
	}
}
