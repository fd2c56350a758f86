package sock

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/sockdiag"
	"github.com/fairway-net/fairway/model"
)

// A connected socket keeps the backend that it was given. When that is gone,
// the plane takes the socket in hand: a UDP socket is connected anew, through
// its frontend, to a backend that is there; a TCP connection is reset, if its
// pool says so. What can't be had from its process is destroyed in the kernel,
// so that its process notices.

// lbSocket is a socket that was connected to a frontend, as the programs remember
// it (struct socket in sock.c).
type lbSocket struct {
	front   model.Key
	backend netip.AddrPort
}

// GC implements path. Sockets are looked at if one of the backends that have gone
// has any, and all of them with every comparison, for what was missed.
func (p *Path) GC(_ context.Context, s *maps.Store, c program.Transition) error {
	old := c.Old
	if c.Verify {
		old = nil
	}
	late := p.late.begin(s, c.Want)
	plan := conntrack.Plan(old, c.Want, c.Want.Since(old))
	if plan == nil {
		return late
	}
	if old != nil && !p.late.concerns() {
		if held, err := anySockets(s, c.RemovedBackends); err != nil || !held {
			return errors.Join(err, late)
		}
	}
	now, later, isNew := map[uint64]lbSocket{}, map[uint64]time.Duration{}, map[uint64]bool{}
	seen := map[uint64]bool{}
	err := eachSocket(s.Resizable[maps.SocketsMap], func(cookie uint64, h lbSocket) {
		seen[cookie] = true
		fate := plan.Fate(&conntrack.Flow{Proto: h.front.Proto, Frontend: netip.AddrPortFrom(h.front.Addr, h.front.Port), Backend: h.backend, Replied: true})
		switch {
		case fate.Forget:
			now[cookie] = h
		case fate.Expire > 0:
			later[cookie], isNew[cookie] = fate.Expire, keeps(old, h)
		}
	})
	if err != nil {
		return err
	}
	p.late.forget(func(cookie uint64) bool { return seen[cookie] })
	return errors.Join(late, detachSockets(now), p.late.set(later, func(cookie uint64) bool { return isNew[cookie] }))
}

// anySockets reports whether sockets are connected to any of these backends.
func anySockets(s *maps.Store, backends []uint32) (bool, error) {
	for _, id := range backends {
		var state struct{ Active, Sockets int64 } // struct state of bpf/types.h; see count in bpf/maps.h
		if err := s.States.Read(id, &state); err != nil || state.Sockets > 0 {
			return true, err
		}
	}
	return false, nil
}

// reconnectToFrontends connects UDP sockets to their frontends themselves, so that whoever
// serves these from now on has them.
func (p *Path) reconnectToFrontends(dir string) error {
	m, err := maps.OpenResizable(dir, maps.SocketsMap)
	if err != nil || m == nil {
		return err
	}
	sockets := map[uint64]lbSocket{}
	err = eachSocket(m, func(cookie uint64, h lbSocket) {
		if h.front.Proto == model.UDP {
			sockets[cookie] = h
		}
	})
	if err := errors.Join(err, m.Close()); err != nil {
		return err
	}
	return detachSockets(sockets)
}

// eachSocket reads what the programs remember of sockets.
func eachSocket(m *maps.Resizable, visit func(cookie uint64, h lbSocket)) error {
	return m.Each(func(key, value []byte) {
		k, v := program.Unpacker(key), program.Unpacker(value)
		visit(k.U64(), lbSocket{front: v.Key(), backend: v.Endpoint()})
	})
}

// detachSockets takes sockets away from their backends.
func detachSockets(sockets map[uint64]lbSocket) error {
	if len(sockets) == 0 {
		return nil
	}
	if err := sockdiag.EachOwner(sockets, func(fd int, h lbSocket) error {
		if h.front.Proto == model.UDP {
			return reconnect(fd, h.front)
		}
		return sockdiag.Disconnect(fd)
	}); err != nil {
		return err
	}
	if len(sockets) == 0 {
		return nil
	}
	return sockdiag.Destroy(sockets)
}

// reconnect connects a UDP socket to a frontend anew.
func reconnect(fd int, to model.Key) error {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("read a socket's family: %w", err)
	}
	var address unix.Sockaddr
	switch {
	case family == unix.AF_INET6: // an IPv4 frontend is mapped
		address = &unix.SockaddrInet6{Port: int(to.Port), Addr: to.Addr.As16()}
	case to.Addr.Is4():
		address = &unix.SockaddrInet4{Port: int(to.Port), Addr: to.Addr.As4()}
	default:
		return sockdiag.ErrNotDone // no such address can be had with this socket
	}
	if err := unix.Connect(fd, address); err != nil {
		return sockdiag.ErrNotDone // no route, for instance
	}
	return nil
}
