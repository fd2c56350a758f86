package ebpf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
)

// A connected socket keeps the backend that it was given. When that is gone,
// the plane takes the socket in hand: a UDP socket is connected anew, through
// its frontend, to a backend that is there; a TCP connection is reset, if its
// pool says so. What can't be had from its process is destroyed in the kernel,
// so that its process notices.

// held is a socket that was connected to a frontend, as the programs remember
// it (struct socket in sock.c).
type held struct {
	front   model.Key
	backend netip.AddrPort
}

// sweep implements path. Sockets are looked at if one of the backends that have gone
// has any, and all of them with every comparison, for what was missed.
func (p *socketPath) sweep(_ context.Context, s *store, c changed) error {
	old := c.old
	if c.verify {
		old = nil
	}
	plan := conntrack.Plan(old, c.want, c.want.Since(old))
	if plan == nil {
		return p.late.take()
	}
	if old != nil {
		if held, err := s.anyHeld(c.gone); err != nil || !held {
			return errors.Join(err, p.late.take())
		}
	}
	now, later := map[uint64]held{}, map[time.Duration]map[uint64]held{}
	err := eachHeld(s.growing[socketsMap], func(cookie uint64, h held) {
		fate := plan.Fate(&conntrack.Flow{Proto: h.front.Proto, Frontend: netip.AddrPortFrom(h.front.Addr, h.front.Port), Backend: h.backend, Replied: true})
		switch {
		case fate.Forget:
			now[cookie] = h
		case fate.Expire > 0 && p.late.expect(cookie):
			if later[fate.Expire] == nil {
				later[fate.Expire] = map[uint64]held{}
			}
			later[fate.Expire][cookie] = h
		}
	})
	if err != nil {
		return err
	}
	for wait, sockets := range later {
		cookies := slices.Collect(maps.Keys(sockets))
		time.AfterFunc(wait, func() { p.late.note(moveOn(sockets), cookies) })
	}
	return errors.Join(moveOn(now), p.late.take())
}

// anyHeld reports whether sockets are connected to any of these backends.
func (s *store) anyHeld(backends []uint32) (bool, error) {
	for _, id := range backends {
		var state struct{ Active, Sockets uint64 } // struct state of bpf/types.h
		if err := s.states.read(id, &state); err != nil || state.Sockets > 0 {
			return true, err
		}
	}
	return false, nil
}

// giveBack connects UDP sockets to their frontends themselves, so that whoever
// serves these from now on has them.
func (p *socketPath) giveBack(dir string) error {
	m, err := openGrown(dir, socketsMap)
	if err != nil || m == nil {
		return err
	}
	sockets := map[uint64]held{}
	err = eachHeld(m, func(cookie uint64, h held) {
		if h.front.Proto == model.UDP {
			sockets[cookie] = h
		}
	})
	if err := errors.Join(err, m.close()); err != nil {
		return err
	}
	return moveOn(sockets)
}

// eachHeld reads what the programs remember of sockets.
func eachHeld(m *growing, visit func(cookie uint64, h held)) error {
	return m.each(func(key, value []byte) {
		k, v := unpacker(key), unpacker(value)
		visit(k.u64(), held{front: v.key(), backend: v.endpoint()})
	})
}

// moveOn takes sockets away from their backends.
func moveOn(sockets map[uint64]held) error {
	if len(sockets) == 0 {
		return nil
	}
	if err := eachHolder(sockets, func(fd int, h held) error {
		if h.front.Proto == model.UDP {
			return reconnect(fd, h.front)
		}
		return disconnect(fd)
	}); err != nil {
		return err
	}
	if len(sockets) == 0 {
		return nil
	}
	return destroy(sockets)
}

// reconnect connects a UDP socket to a frontend anew.
func reconnect(fd int, to model.Key) error {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("read a socket's family: %w", err)
	}
	var address unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port), Addr: to.Addr.Unmap().As4()}
	if family == unix.AF_INET6 {
		address = &unix.SockaddrInet6{Port: int(to.Port), Addr: to.Addr.As16()}
	}
	if err := unix.Connect(fd, address); err != nil {
		return errNotDone // no route, for instance
	}
	return nil
}

// disconnect resets a TCP connection.
func disconnect(fd int) error {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if err := connectRaw(fd, &unspecified); err != nil {
		return errNotDone // some kernels don't while a process waits for it: EBUSY
	}
	return nil
}
