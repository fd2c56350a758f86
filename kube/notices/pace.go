package notices

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A large cluster starts or changes on all nodes together, and most of what there is to
// tell is the same everywhere. So that this doesn't overwhelm the API, some nodes speak
// for all (the first is heard, see write), each begins after a random while, and none
// writes more than one Event a second for long.
const (
	eventBurst  = 10 // at once, then one a second
	maxNotices  = 1024
	speakers    = 8 // of all nodes, on average: that none speaks is one in three thousand
	startSpread = 20 * time.Millisecond
	// countAgain is after which time the nodes are counted anew.
	countAgain = time.Hour
)

// Run writes queued notices as Events until ctx is done.
func (e *Writer) Run(ctx context.Context) error {
	pace := rate.NewLimiter(rate.Every(time.Second), eventBurst)
	var waiting []Notice
	var next <-chan time.Time // nil if nothing waits
	started := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-e.queue:
			if !e.speaksFor(ctx, n) {
				continue
			}
			if len(waiting) == maxNotices {
				continue // it was logged
			}
			if waiting = append(waiting, n); next == nil {
				delay := pace.Reserve().Delay()
				if !started {
					started = true
					delay += rand.N(max(1, time.Duration(e.nodes)) * startSpread)
				}
				next = time.After(delay)
			}
		case <-next:
			e.writeOne(ctx, waiting[0])
			if waiting, next = waiting[1:], nil; len(waiting) > 0 {
				next = time.After(pace.Reserve().Delay())
			}
		}
	}
}

func (e *Writer) writeOne(ctx context.Context, n Notice) {
	write := e.write
	if n.Service.Name == "" {
		write = e.writeNode
	}
	if err := write(ctx, n); err != nil && ctx.Err() == nil {
		e.log.Warn("an Event could not be written", "service", n.Service.String(), "error", err)
	}
}

// speaksFor reports whether this node is to write an Event about what all nodes find.
// All do if their number isn't known.
func (e *Writer) speaksFor(ctx context.Context, n Notice) bool {
	if n.Local || n.Service.Name == "" {
		return true
	}
	if time.Since(e.counted) > countAgain {
		e.counted = time.Now()
		count, err := e.countNodes(ctx)
		if err != nil {
			e.log.Debug("the number of nodes could not be read; this node writes all Events", "error", err)
		}
		e.nodes = count
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, e.node, "/", n.Service, "/", n.Reason, "/", n.Message)
	return float64(mix(hash.Sum64())) < speakers/math.Max(float64(e.nodes), 1)*math.MaxUint64
}

// mix spreads a hash over all its bits (the end of murmur3): FNV's upper ones hardly
// depend on the last letters.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// countNodes asks for one Node, and how many others there are.
func (e *Writer) countNodes(ctx context.Context) (int, error) {
	list, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count Nodes: %w", err)
	}
	count := len(list.Items)
	if list.RemainingItemCount != nil {
		count += int(*list.RemainingItemCount)
	}
	return count, nil
}
