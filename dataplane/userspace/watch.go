package userspace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	flowevent "github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/model"
)

// mostWaiting is how many events may wait for a slow reader.
const mostWaiting = 4096

// watchers are those who read what becomes of connections. While there are none, nobody
// makes events.
type watchers struct {
	any atomic.Bool
	mu  sync.Mutex
	all map[*watcher]struct{}
}

// watcher is one of them.
type watcher struct {
	events chan flowevent.Event
	lost   atomic.Bool
}

func (w *watchers) add() *watcher {
	one := &watcher{events: make(chan flowevent.Event, mostWaiting)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*watcher]struct{}{}
	}
	w.all[one] = struct{}{}
	w.any.Store(true)
	return one
}

func (w *watchers) remove(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
	w.any.Store(len(w.all) > 0)
}

// send sends all of them what make makes, if there is anybody.
func (w *watchers) send(make func() flowevent.Event) {
	if !w.any.Load() {
		return
	}
	e := make()
	e.Time = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		select {
		case one.events <- e:
		default:
			one.lost.Store(true)
		}
	}
}

// event is what is told of a flow.
func (f *flow) event(kind flowevent.Kind) flowevent.Event {
	e := flowevent.Event{
		Kind: kind, Proto: f.key.Proto, Client: f.client, Frontend: netip.AddrPortFrom(f.key.Addr, f.key.Port), Backend: f.backend,
		Replied: f.replied == nil || f.replied.Load(),
	}
	if kind == flowevent.Ended {
		e.Took = time.Since(f.began)
	}
	return e
}

// rejected tells of a client that got no backend.
func (w *watchers) rejected(k model.Key, client netip.AddrPort, action model.Action, reason string) {
	w.send(func() flowevent.Event {
		kind := flowevent.Refused
		if action == model.Discard && k.Proto != model.TCP { // a connection that was accepted can't be dropped silently
			kind = flowevent.Dropped
		}
		return flowevent.Event{Kind: kind, Proto: k.Proto, Client: client, Frontend: netip.AddrPortFrom(k.Addr, k.Port), Reason: reason}
	})
}

// openFlows are the flows that there are.
func (r *relay) openFlows() []flowevent.Event {
	var list []flowevent.Event
	for _, f := range r.flows.where(func(*flow) bool { return true }) {
		e := f.event(flowevent.Open)
		e.Time = time.Now()
		list = append(list, e)
	}
	return list
}

// stream tells one peer what becomes of connections until it goes.
func (s *server) stream(l *link) {
	w := s.relay.watchers.add()
	defer s.relay.watchers.remove(w)
	if l.encoder.Encode(reply{}) != nil {
		return
	}
	gone := make(chan struct{})
	go func() { // nothing more is asked on this connection: its end is the reader's
		discard(l.decoder.Decode(&request{}))
		close(gone)
	}()
	for {
		select {
		case <-gone:
			return
		case e := <-w.events:
			if l.encoder.Encode(reply{Events: []flowevent.Event{e}, Lost: w.lost.Swap(false)}) != nil {
				return
			}
		}
	}
}

// Flows tells of connections: see flow.Reader. A relay that this one has followed, and
// that still has connections, isn't asked.
func Flows(ctx context.Context, stateDir string, follow bool, to flowevent.Listener) (err error) {
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return fmt.Errorf("identify network namespace: %w", err)
	}
	l, _, err := connect(ctx, filepath.Join(stateDir, fmt.Sprintf("userspace-%d%s", stat.Ino, socketSuffix)))
	if err != nil {
		return fmt.Errorf("ask the relay: %w", err)
	}
	defer func() { discard(l.conn.Close()) }()
	if !follow {
		answer, err := l.ask(ctx, request{Op: opFlows})
		for _, e := range answer.Events {
			to.Event(e)
		}
		return err
	}
	if err := l.encoder.Encode(request{Op: opWatch}); err != nil {
		return fmt.Errorf("ask the relay: %w", err)
	}
	defer context.AfterFunc(ctx, func() { discard(l.conn.Close()) })()
	if err := l.decoder.Decode(&reply{}); err != nil { // it has begun
		return fmt.Errorf("ask the relay: %w", err)
	}
	to.Begin()
	for {
		var r reply
		err := l.decoder.Decode(&r)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the relay tells nothing more: %w", err)
		case r.Err != "":
			return errors.New(r.Err)
		}
		if r.Lost {
			to.Note("connections came faster than they were read: some are missing")
		}
		for _, e := range r.Events {
			to.Event(e)
		}
	}
}
