package userspace

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairway-net/fairway/model"
)

// flow is one relayed connection or one client's UDP datagrams.
type flow struct {
	key     model.Key
	pool    model.PoolID
	backend netip.AddrPort
	client  netip.AddrPort
	end     func() // ends it at once, as a reset does; safe to call twice
	began   time.Time
	replied *atomic.Bool // nil: from the beginning
}

// flows are all that are under way.
type flows struct {
	mu   sync.Mutex
	all  map[*flow]struct{}
	busy int        // those in all, and those that have no backend yet
	idle *sync.Cond // signalled when busy is 0
}

func newFlows() *flows {
	f := &flows{all: map[*flow]struct{}{}}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// begin counts a flow that is yet to be added, so that nobody thinks there are
// none; every begin has its finish.
func (f *flows) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy++
}

func (f *flows) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy--; f.busy == 0 {
		f.idle.Broadcast()
	}
}

func (f *flows) add(x *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[x] = struct{}{}
}

func (f *flows) remove(x *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, x)
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// where lists the flows that match.
func (f *flows) where(match func(*flow) bool) []*flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	var matched []*flow
	for x := range f.all {
		if match(x) {
			matched = append(matched, x)
		}
	}
	return matched
}

// endWhere ends the flows that match.
func (f *flows) endWhere(match func(*flow) bool) {
	for _, x := range f.where(match) {
		x.end()
	}
}

// wait blocks until there are none.
func (f *flows) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.busy > 0 {
		f.idle.Wait()
	}
}
