package connections

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairway-net/fairway/internal/drops"
	"github.com/fairway-net/fairway/internal/flow"
)

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
