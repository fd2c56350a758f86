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
	last     atomic.Int64 // when a datagram last went either way, in nanoseconds after began
	answered atomic.Bool
}

// began is what times of sessions count from: by the clock that nobody sets.
var began = time.Now()

// used notes that a datagram goes.
func (x *session) used() { x.last.Store(int64(time.Since(began))) }

func (x *session) expires(r *relay) time.Time {
	timeout := r.udpUnanswered
	if x.answered.Load() {
		timeout = r.udpAnswered
	}
	return began.Add(time.Duration(x.last.Load()) + timeout)
}

// passOn sends a client's datagram to its backend.
func (x *session) passOn(d *datagram) {
	x.used()
	if _, err := x.conn.Write(d.bytes()); errors.Is(err, syscall.ECONNREFUSED) {
		// That was the answer to an earlier datagram; this one is still to go.
		_, err = x.conn.Write(d.bytes())
		discard(err) // a datagram lost is a datagram lost
	}
}
