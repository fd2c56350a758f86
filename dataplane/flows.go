package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
)

// netfilterFlows reads conntrack, which has the connections of all modes that translate
// in netfilter, and what the kernel drops, since conntrack never hears of that.
func netfilterFlows(kernel.Options) flow.Reader {
	return func(ctx context.Context, follow bool, to flow.Listener) error {
		if !follow {
			return conntrack.Flows(ctx, func(f *conntrack.Flow) { to.Event(eventOf(f, f.Ended(), flow.Open)) })
		}
		events, err := conntrack.Subscribe()
		if err != nil {
			return err
		}
		times := beginnings{}
		return withDrops(ctx, to, func(ctx context.Context, to flow.Listener) error {
			to.Begin()
			return events.Run(ctx, func(f *conntrack.Flow, ended bool) { to.Event(times.timed(eventOf(f, ended, flow.Began))) }, func() {
				to.Note("connections came faster than they were read: some are missing")
			})
		})
	}
}

// beginnings are when connections began that haven't ended.
type beginnings map[[2]netip.AddrPort]time.Time

// mostBeginnings is how many are remembered.
const mostBeginnings = 1 << 16

// timed says of a connection that has ended how long it took.
func (b beginnings) timed(e flow.Event) flow.Event {
	key := [2]netip.AddrPort{e.Client, e.Frontend}
	switch began, known := b[key]; {
	case e.Kind == flow.Ended && known:
		e.Took = e.Time.Sub(began)
		delete(b, key)
	case e.Kind == flow.Began && len(b) < mostBeginnings:
		b[key] = e.Time
	}
	return e
}

// eventOf is what is told of a flow of conntrack's.
func eventOf(f *conntrack.Flow, ended bool, kind flow.Kind) flow.Event {
	if ended {
		kind = flow.Ended
	}
	return flow.Event{Kind: kind, Time: time.Now(), Proto: f.Proto, Client: f.Client, Frontend: f.Frontend, Backend: f.Backend, Source: f.Source, Replied: f.Replied, Counted: f.Counted, In: f.In, Out: f.Out}
}

// userspaceFlows asks the relay; what has no listener the kernel refuses.
func userspaceFlows(o kernel.Options) flow.Reader {
	return func(ctx context.Context, follow bool, to flow.Listener) error {
		read := func(ctx context.Context, to flow.Listener) error {
			return userspace.Flows(ctx, o.StateDirectory(), follow, to)
		}
		if !follow {
			return read(ctx, to)
		}
		return withDrops(ctx, to, read)
	}
}

// withDrops tells of packets that the kernel drops while read runs.
func withDrops(ctx context.Context, to flow.Listener, read func(context.Context, flow.Listener) error) (err error) {
	var turn sync.Mutex
	safe := flow.Listener{
		Event: func(e flow.Event) { turn.Lock(); defer turn.Unlock(); to.Event(e) },
		Note:  func(text string) { turn.Lock(); defer turn.Unlock(); to.Note(text) },
		Began: to.Began,
	}
	w, err := drops.Open(drops.Query{})
	if err != nil {
		safe.Note(fmt.Sprintf("refused and dropped connections aren't told of: %v", err))
		return read(ctx, safe)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- w.Run(ctx, func(d drops.Drop) { safe.Event(dropped(d)) }, func() { safe.Note(drops.ErrLost.Error()) })
	}()
	err = read(ctx, safe)
	stop()
	return errors.Join(err, <-ended, w.Close())
}

// dropped is what is told of a packet that the kernel dropped. Whether the client was
// told so is for those to say who know the table.
func dropped(d drops.Drop) flow.Event {
	e := flow.Event{Kind: flow.Dropped, Time: time.Now(), Proto: d.Proto, Client: d.Client, Frontend: d.Frontend, Reason: d.Reason}
	if d.Destination != d.Frontend {
		e.Backend = d.Destination
	}
	if d.Reason == "NO_SOCKET" {
		e.Kind = flow.Refused
	}
	return e
}
