package userspace

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// traffic is what a relay has passed on, by frontend. A relay that takes another
// one's place begins anew.
type traffic struct {
	mu  sync.Mutex
	all map[model.Key]*counter
}

// counter is one frontend's. Bytes are of what is said, without headers.
type counter struct{ connections, refused, in, out atomic.Uint64 }

func newTraffic() *traffic { return &traffic{all: map[model.Key]*counter{}} }

// of is a frontend's counter.
func (t *traffic) of(k model.Key) *counter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[k] == nil {
		t.all[k] = &counter{}
	}
	return t.all[k]
}

// forget gives up the counter of a frontend that is gone.
func (t *traffic) forget(k model.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, k)
}

func (t *traffic) counts() []kernel.Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]kernel.Count, 0, len(t.all))
	for k, c := range t.all {
		list = append(list, kernel.Count{
			Frontend: k, Connections: c.connections.Load(), Refused: c.refused.Load(), In: c.in.Load(), Out: c.out.Load(),
		})
	}
	return list
}

// frontendCounts asks the relay what it has counted. What the
// kernel refuses, because a frontend without endpoints has no listener, nobody
// counts; nor does a relay what one before it still serves.
func (p *Plane) frontendCounts(ctx context.Context) (counts []kernel.Count, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, _, err := connect(ctx, p.socket)
	if notRunning(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { discard(l.conn.Close()) }()
	answer, err := l.ask(ctx, request{Op: opCounts})
	if err != nil {
		return nil, fmt.Errorf("ask relay: %w", err)
	}
	return answer.Counts, nil
}
