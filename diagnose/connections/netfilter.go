package connections

import (
	"context"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/flow"
)

// inConntrack reads conntrack, which has the connections of all modes that translate
// in netfilter, and what the kernel drops, since conntrack never hears of that.
func inConntrack(ctx context.Context, follow bool, to flow.Listener) error {
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
