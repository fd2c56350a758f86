package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// take asks the relay that has the socket, if there is one, for all that can be
// given.
func (s *server) take(ctx context.Context) error {
	l, _, err := connect(ctx, s.config.Socket)
	if notRunning(err) {
		return s.takeBack(ctx)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(s.takeFrom(ctx, l), l.conn.Close()); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	return nil
}

// takeBack does so with relays that have given up to another plane, and still have
// listeners for what is on its way: this mode serves again.
func (s *server) takeBack(ctx context.Context) error {
	earlier, err := predecessors(ctx, s.config.Socket)
	failed := []error{err}
	for _, l := range earlier {
		status, err := l.ask(ctx, request{Op: opStatus})
		if err == nil && len(status.Open) > 0 {
			err = s.takeFrom(ctx, l)
		}
		if errors.Is(err, errBroken) {
			err = nil // it has ended meanwhile: nothing to take
		}
		failed = append(failed, err, l.conn.Close())
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("take back: %w", err)
	}
	return nil
}

func (s *server) takeFrom(ctx context.Context, l *link) error {
	if err := l.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	offer, err := l.ask(ctx, request{Op: opHandover})
	if err != nil {
		return err
	}
	if err := l.encoder.Encode(request{Op: opGoOn}); err != nil {
		return err
	}
	files, err := receiveFiles(l.conn, len(offer.Given))
	if err != nil {
		return err
	}
	s.relay.transparent.Store(offer.Transparent)
	s.relay.balancer.remember(offer.Memory)
	if err := s.relay.inherit(offer, files); err != nil {
		return err
	}
	_, err = l.ask(ctx, request{Op: opTaken})
	if errors.Is(err, errBroken) {
		return nil // it has nothing left to do, or died: all is ours anyway
	}
	return err
}

// receiveFiles reads as many descriptors as were announced.
func receiveFiles(conn *net.UnixConn, n int) ([]*os.File, error) {
	var files []*os.File
	first, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*descriptorsAtOnce))
	for len(files) < n {
		got, size, flags, _, err := conn.ReadMsgUnix(first, oob)
		switch {
		case err != nil:
			return nil, fmt.Errorf("receive sockets: %w", err)
		case got == 0:
			return nil, fmt.Errorf("receive sockets: %d of %d came", len(files), n)
		case flags&unix.MSG_CTRUNC != 0:
			return nil, errors.New("receive sockets: no descriptors left (RLIMIT_NOFILE)")
		case first[0] != descriptorByte:
			continue // the end of a JSON line
		}
		messages, err := unix.ParseSocketControlMessage(oob[:size])
		if err != nil {
			return nil, fmt.Errorf("receive sockets: %w", err)
		}
		for _, m := range messages {
			fds, err := unix.ParseUnixRights(&m)
			if err != nil {
				return nil, fmt.Errorf("receive sockets: %w", err)
			}
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), "inherited"))
			}
		}
	}
	return files, nil
}

// inheritedSession is the session of a client of another relay's.
type inheritedSession struct {
	flow
	conn *net.UDPConn
}

// inherit opens what another relay had open, and goes on with its UDP clients.
func (r *relay) inherit(offer reply, files []*os.File) error {
	for i, g := range offer.Given {
		if !g.Client.IsValid() {
			r.inherited[g.Key] = files[i]
			continue
		}
		conn, err := net.FilePacketConn(files[i])
		discard(files[i].Close())
		if err != nil {
			return fmt.Errorf("go on with client %s of %s: %w", g.Client, g.Key, err)
		}
		h := inheritedSession{flow{key: g.Key, pool: g.Pool, backend: g.Backend, client: g.Client}, conn.(*net.UDPConn)}
		r.inheritedSessions[g.Key] = append(r.inheritedSessions[g.Key], h)
	}
	// What can't be opened here couldn't be there; the agent's next table tries
	// again and reports it.
	r.apply(offer.Delta)
	for k, file := range r.inherited {
		discard(file.Close())
		delete(r.inherited, k)
	}
	for k, list := range r.inheritedSessions {
		for _, h := range list {
			discard(h.conn.Close())
		}
		delete(r.inheritedSessions, k)
	}
	return nil
}

// memories lists the clients that belong somewhere.
func (b *balancer) memories() []remembered {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []remembered
	now := b.now()
	for id, m := range b.pools {
		for client, a := range m.clients {
			// As today's clock has it, which may have been set since.
			list = append(list, remembered{id, client, a.backend, now.Add(-now.Sub(a.last))})
		}
	}
	return list
}

func (b *balancer) remember(list []remembered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for _, x := range list {
		// And from here on, as the clock has it that nobody sets.
		b.memory(x.Pool).clients[x.Client] = &affinity{backend: x.Backend, last: now.Add(-now.Sub(x.Last))}
	}
}
