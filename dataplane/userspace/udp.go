package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/model"
)

// A client's datagrams belong together as long as conntrack would keep them
// together (nf_conntrack_udp_timeout, nf_conntrack_udp_timeout_stream).
const (
	udpUnanswered = 30 * time.Second
	udpAnswered   = 120 * time.Second
)

// maxClients bounds the clients of one listener: each costs a descriptor.
// Datagrams of more are dropped, as a full conntrack table drops them.
const maxClients = 16384

// udpSocket is a listener and the sessions of its clients.
type udpSocket struct {
	relay *relay
	key   model.Key
	conn  *net.UDPConn

	mu       sync.Mutex
	sessions map[netip.AddrPort]*session
}

// session is a client with a socket of its own to its backend.
type session struct {
	flow
	conn     *net.UDPConn
	last     atomic.Int64 // when a datagram last went either way, Unix nanoseconds
	answered atomic.Bool
}

func (s *udpSocket) file() (*os.File, error) { return s.conn.File() }
func (s *udpSocket) close()                  { discard(s.conn.Close()) }
func (s *udpSocket) pause()                  { discard(s.conn.SetReadDeadline(time.Unix(1, 0))) }

func (r *relay) listenUDP(k model.Key, inherited *os.File) (socket, error) {
	var packets net.PacketConn
	var err error
	if inherited != nil {
		packets, err = net.FilePacketConn(inherited)
		discard(inherited.Close())
	} else {
		packets, err = listenConfig.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(k.Addr, k.Port).String())
	}
	if err != nil {
		return nil, err
	}
	conn, ok := packets.(*net.UDPConn)
	if !ok {
		return nil, fmt.Errorf("inherited a %T, not a UDP socket", packets)
	}
	discard(conn.SetReadDeadline(time.Time{})) // the relay before paused it
	s := &udpSocket{relay: r, key: k, conn: conn, sessions: map[netip.AddrPort]*session{}}
	go s.receive()
	return s, nil
}

// datagrams are buffers for the largest datagram there is.
var datagrams = sync.Pool{New: func() any { return new([65535]byte) }}

// receive takes in clients' datagrams until the socket is closed or paused.
func (s *udpSocket) receive() {
	buffer := datagrams.Get().(*[65535]byte)
	defer datagrams.Put(buffer)
	for {
		n, client, err := s.conn.ReadFromUDPAddrPort(buffer[:])
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil: // an ICMP error about an answer of ours
			continue
		}
		client = netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
		x := s.session(client)
		if x == nil {
			continue
		}
		x.last.Store(time.Now().UnixNano())
		if _, err := x.conn.Write(buffer[:n]); errors.Is(err, syscall.ECONNREFUSED) {
			// That was the answer to an earlier datagram; this one is still to go.
			_, err = x.conn.Write(buffer[:n])
			discard(err) // a datagram lost is a datagram lost
		}
	}
}

// session finds a client's session or begins one; nil if the table has no
// backend for it. Only receive calls it, so that no client begins two; the lock
// is not held while the table is asked, whose changes end sessions.
func (s *udpSocket) session(client netip.AddrPort) *session {
	s.mu.Lock()
	x, full := s.sessions[client], len(s.sessions) >= maxClients
	s.mu.Unlock()
	if x != nil || full {
		return x
	}
	v := s.relay.decide(s.key, client)
	if v.Action != model.Forward {
		return nil
	}
	backend, ok := s.relay.balancer.pick(v.Pool, client.Addr(), nil)
	if !ok {
		return nil
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(backend))
	if err != nil {
		return nil
	}
	return s.begin(&flow{key: s.key, pool: v.Pool.ID, backend: backend, client: client}, conn)
}

// begin registers a session.
func (s *udpSocket) begin(f *flow, conn *net.UDPConn) *session {
	x := &session{flow: *f, conn: conn}
	x.last.Store(time.Now().UnixNano())
	x.end = sync.OnceFunc(func() { discard(conn.Close()); s.forget(x) })
	s.mu.Lock()
	s.sessions[f.client] = x
	s.mu.Unlock()
	s.relay.balancer.count(f.pool, f.backend, 1)
	s.relay.flows.add(&x.flow)
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
		s.relay.balancer.count(x.pool, x.backend, -1)
	}()
	buffer := datagrams.Get().(*[65535]byte)
	defer datagrams.Put(buffer)
	for {
		if err := x.conn.SetReadDeadline(x.expires()); err != nil {
			return
		}
		n, err := x.conn.Read(buffer[:])
		switch {
		case err == nil:
			x.answered.Store(true)
			x.last.Store(time.Now().UnixNano())
			_, err := s.conn.WriteToUDPAddrPort(buffer[:n], x.client)
			discard(err) // a datagram lost is a datagram lost
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !time.Now().Before(x.expires()) {
				return
			}
		case errors.Is(err, syscall.ECONNREFUSED): // nobody listens there now; the client is not told, as by kube-proxy
		default:
			return
		}
	}
}

func (x *session) expires() time.Time {
	timeout := udpUnanswered
	if x.answered.Load() {
		timeout = udpAnswered
	}
	return time.Unix(0, x.last.Load()).Add(timeout)
}
