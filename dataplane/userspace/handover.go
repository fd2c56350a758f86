package userspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/model"
)

// A handover, between the relay that runs and its successor:
//
//	successor: handover
//	relay:     what it has: listeners, UDP clients, affinities, the table (and takes nothing in from now on)
//	successor: go on
//	relay:     the sockets, duplicated by the kernel (SCM_RIGHTS)
//	successor: taken
//	relay:     done (it has closed its own, and stays for its connections under another name)
//
// If either dies before "taken", the other goes on as if nothing had been.
// Connections and datagrams that come meanwhile wait in the sockets' queues.

// handedSocket is one that changes hands: a listener, or the one that a UDP
// client has towards its backend.
type handedSocket struct {
	Key     model.Key
	Client  netip.AddrPort // of a UDP client; zero for listeners
	Backend netip.AddrPort
	Pool    model.PoolID
}

// remembered is a client with session affinity.
type remembered struct {
	Pool    model.PoolID
	Client  netip.Addr
	Backend netip.AddrPort
	Last    time.Time
}

// descriptorsAtOnce is how many one message carries; the kernel's limit is 253
// (SCM_MAX_FD, net/scm.h).
const descriptorsAtOnce = 200

// handOver gives all listeners and UDP clients to the relay at the other end,
// and stays for the connections that are under way.
func (s *server) handOver(l *link) error {
	s.asking.Lock()
	defer s.asking.Unlock()
	if err := s.give(l); err != nil {
		s.relay.thaw()
		return err
	}
	s.relay.closeListeners()
	if err := s.stepAside(); err != nil {
		return err // connections go on all the same
	}
	return l.encoder.Encode(reply{})
}

// give sends everything, and returns when the other end has it.
func (s *server) give(l *link) error {
	if err := l.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	list, descriptors, err := s.relay.retire()
	defer closeAll(descriptors)
	if err != nil {
		return err
	}
	offer := reply{Given: list, Memory: s.relay.balancer.memories(), Delta: s.relay.current().Delta(nil), Transparent: s.relay.transparent.Load()}
	if err := l.encoder.Encode(offer); err != nil {
		return err
	}
	// The other end must have read all of the JSON before descriptors come.
	var next request
	if err := l.decoder.Decode(&next); err != nil {
		return err
	}
	if err := sendDescriptors(l.conn, descriptors); err != nil {
		return err
	}
	if err := l.decoder.Decode(&next); err != nil {
		return err
	}
	if next.Op != opTaken {
		return fmt.Errorf("the successor said %q instead of %q", next.Op, opTaken)
	}
	return nil
}

// stepAside leaves the socket's name to the successor; until the last
// connection has ended, this relay is reached by another.
func (s *server) stepAside() error {
	discard(s.listener.Close())
	s.clearUp.Store(false) // if it was retiring: the routes are the successor's now
	before := s.path
	err := s.open(asideName(s.config.Socket))
	if before != s.config.Socket {
		err = errors.Join(err, removeFile(before))
	}
	go func() { s.relay.flows.wait(); s.stop() }()
	return err
}

const socketSuffix = ".sock"

// maxSocketPath is what fits into sun_path with the zero behind it (unix(7)).
const maxSocketPath = 107

// asideName is a new name for a relay that steps aside.
func asideName(socket string) string {
	return asidePrefix(socket) + strings.ToLower(rand.Text()[:8]) + socketSuffix
}

// asidePrefix begins the names of the relays that came before the one that has
// a socket, and still have connections.
func asidePrefix(socket string) string { return strings.TrimSuffix(socket, socketSuffix) + ".old-" }

// predecessors reaches all of them, and takes away what dead ones left.
func predecessors(ctx context.Context, socket string) (links []*link, err error) {
	paths, err := filepath.Glob(asidePrefix(socket) + "*" + socketSuffix)
	if err != nil {
		return nil, fmt.Errorf("find earlier relays: %w", err)
	}
	var failed []error
	for _, path := range paths {
		l, _, err := connect(ctx, path)
		switch {
		case err == nil:
			links = append(links, l)
		case errors.Is(err, syscall.ECONNREFUSED):
			failed = append(failed, removeFile(path))
		case !notRunning(err):
			failed = append(failed, err)
		}
	}
	return links, errors.Join(failed...)
}

// retire ends taking anything in, and duplicates all sockets. TCP connections
// stay; answers to UDP clients are passed on until closeListeners.
func (r *relay) retire() (list []handedSocket, descriptors []int, err error) {
	sockets := r.setRetired(true)
	for _, s := range sockets {
		s.freeze()
	}
	add := func(g handedSocket, c syscall.Conn) error {
		fd, err := duplicate(c)
		if errors.Is(err, net.ErrClosed) {
			return nil // a client that ended just now
		}
		if err != nil {
			return fmt.Errorf("duplicate socket of %s: %w", g.Key, err)
		}
		list, descriptors = append(list, g), append(descriptors, fd)
		return nil
	}
	for k, s := range sockets {
		if err := add(handedSocket{Key: k}, s.conn()); err != nil {
			return list, descriptors, err
		}
		udp, ok := s.(*udpSocket)
		if !ok {
			continue
		}
		for _, x := range udp.all() {
			if err := add(handedSocket{Key: k, Client: x.client, Backend: x.backend, Pool: x.pool}, x.conn); err != nil {
				return list, descriptors, err
			}
		}
	}
	return list, descriptors, nil
}

// setRetired says whether listeners are somebody else's, and lists them.
func (r *relay) setRetired(retired bool) map[model.Key]socket {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired = retired
	return r.sockets
}

// thaw undoes retire.
func (r *relay) thaw() {
	for _, s := range r.setRetired(false) {
		s.thaw()
	}
}

// closeListeners closes what has been handed over.
func (r *relay) closeListeners() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, s := range r.sockets {
		s.close()
		delete(r.sockets, k)
	}
}

// removeFile removes a file; one that isn't there is none to complain of.
func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
