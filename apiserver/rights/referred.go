package rights

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// referredFor is how long what something referred to stays readable without another
// look. Nodes read each password every 15 s.
const referredFor = 10 * time.Second

// referred knows the names that something refers to. The zero value is ready to use.
type referred[K comparable] struct {
	// looking is held by who lists: one at a time, however many ask.
	looking sync.Mutex
	mu      sync.RWMutex
	names   sets.Set[K]
	read    time.Time
}

// has reports whether something refers to a name, by a list of all that is referred to.
// Names that were referred to a moment ago are not looked up again, others always are:
// who hears of a reference asks at once.
func (r *referred[K]) has(ctx context.Context, name K, list func(context.Context) ([]K, error)) (bool, error) {
	if r.known(name) {
		return true, nil
	}
	r.looking.Lock()
	defer r.looking.Unlock()
	if r.known(name) {
		return true, nil
	}
	began := time.Now()
	names, err := list(ctx)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names, r.read = sets.New(names...), began
	return r.names.Has(name), nil
}

func (r *referred[K]) known(name K) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return time.Since(r.read) < referredFor && r.names.Has(name)
}
