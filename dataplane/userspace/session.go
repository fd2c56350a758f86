package userspace

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A client's datagrams belong together as long as conntrack would keep them
// together (nf_conntrack_udp_timeout, nf_conntrack_udp_timeout_stream).
const (
	udpUnanswered = 30 * time.Second
	udpAnswered   = 120 * time.Second
)

// session is a client with a socket of its own to its backend.
type session struct {
	flow
	conn     *net.UDPConn
	last     atomic.Int64 // when a datagram last went either way, Unix nanoseconds
	answered atomic.Bool
}

func (x *session) expires(r *relay) time.Time {
	timeout := r.udpUnanswered
	if x.answered.Load() {
		timeout = r.udpAnswered
	}
	return time.Unix(0, x.last.Load()).Add(timeout)
}

// passOn sends a client's datagram to its backend.
func (x *session) passOn(d *datagram) {
	x.last.Store(time.Now().UnixNano())
	if _, err := x.conn.Write(d.bytes()); errors.Is(err, syscall.ECONNREFUSED) {
		// That was the answer to an earlier datagram; this one is still to go.
		_, err = x.conn.Write(d.bytes())
		discard(err) // a datagram lost is a datagram lost
	}
}
