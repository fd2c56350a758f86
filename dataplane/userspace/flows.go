package userspace

import (
	"net/netip"
	"sync"

	"github.com/fairway-net/fairway/model"
)

// flow is one relayed connection or one client's UDP datagrams.
type flow struct {
	key     model.Key
	pool    model.PoolID
	backend netip.AddrPort
	client  netip.AddrPort
	end     func() // ends it at once, as a reset does; safe to call twice
}

// flows are all that are under way.
type flows struct {
	mu   sync.Mutex
	all  map[*flow]struct{}
	idle *sync.Cond // signalled when all is empty
}

func newFlows() *flows {
	f := &flows{all: map[*flow]struct{}{}}
	f.idle = sync.NewCond(&f.mu)
	return f
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
	if len(f.all) == 0 {
		f.idle.Broadcast()
	}
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// endWhere ends the flows that match.
func (f *flows) endWhere(match func(*flow) bool) {
	f.mu.Lock()
	var matched []*flow
	for x := range f.all {
		if match(x) {
			matched = append(matched, x)
		}
	}
	f.mu.Unlock()
	for _, x := range matched {
		x.end()
	}
}

// wait blocks until there are none.
func (f *flows) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.all) > 0 {
		f.idle.Wait()
	}
}
