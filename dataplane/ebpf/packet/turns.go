package packet

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
)

// turnsMap has the queue in which connections have their turns to be looked at:
// see bpf/expire.h.
const turnsMap = "tracked_1"

// turnQueue is that queue. Connections have one place in it each.
type turnQueue struct {
	outer pins.Inner
	spec  *ebpf.MapSpec // of a queue

	mu  sync.Mutex
	now *ebpf.Map
}

// spareTurns is room for more than a table's connections: for marks, and for such that
// have ended and not had their turn since. A queue that was full before the table was
// couldn't take in netfilter's connections, and the node was never taken over.
const spareTurns = 1 << 12

// openTurns finds the queue, or makes one.
func openTurns(s *maps.Store, specs map[string]*ebpf.MapSpec) (*turnQueue, error) {
	q := &turnQueue{outer: pins.InnerOf(s.Maps[turnsMap], s.Dir, turnsMap), spec: maps.Inner(specs[turnsMap])}
	var err error
	if q.now, err = q.outer.Open(0); err == nil && q.now == nil {
		q.now, err = q.make(q.spec.MaxEntries + spareTurns)
		if err == nil {
			err = q.outer.Put(0, q.now)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", turnsMap, err)
	}
	return q, nil
}

func (q *turnQueue) make(size uint32) (*ebpf.Map, error) {
	spec := q.spec.Copy()
	spec.MaxEntries = size
	return ebpf.NewMap(spec)
}

// put gives a connection its place.
func (q *turnQueue) put(c *tcTracked) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.now.Put(nil, c)
	if errors.Is(err, unix.E2BIG) {
		return &kernel.FullError{What: "the eBPF map tracked", LeftOut: 1}
	}
	if err != nil {
		return fmt.Errorf("add to map %s: %w", turnsMap, err)
	}
	return nil
}

// putTurn gives a connection of the table, or a mark, its place. A queue that is full is
// made anew: what it holds that has ended goes.
func (t *connTable) putTurn(c *tcTracked) error {
	err := t.turns.put(c)
	if full := (*kernel.FullError)(nil); !errors.As(err, &full) {
		return err
	}
	if err := t.turns.rebuild(t); err != nil {
		return err
	}
	if c.Id != 0 {
		return nil // it is among those that were listed
	}
	return t.turns.put(c)
}

// rebuild makes a queue of all connections of a table, with room for as many as fit
// into that, and puts it in the place of the one that there is. So also those have
// their place that programs of an earlier version began.
func (q *turnQueue) rebuild(conns *connTable) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	next, err := q.make(max(q.spec.MaxEntries, conns.m.Size()/2) + spareTurns)
	if err != nil {
		return fmt.Errorf("create map %s: %w", turnsMap, err)
	}
	known := map[uint64]bool{}
	var failed error
	err = conns.each(func(key *tcTuple, e *tcConn) {
		if !e.has(tcTraitsLISTED) || known[e.Id] || failed != nil {
			return
		}
		known[e.Id] = true
		failed = next.Put(nil, &tcTracked{Answers: *key, Id: e.Id})
	})
	if errors.Is(failed, unix.E2BIG) {
		failed = nil // there were more than it should have room for: the programs make room
	}
	if err := errors.Join(err, failed); err != nil {
		return errors.Join(fmt.Errorf("list connections: %w", err), next.Close())
	}
	if err := q.outer.Put(0, next); err != nil {
		return errors.Join(fmt.Errorf("replace map %s: %w", turnsMap, err), next.Close())
	}
	kernel.Quiesce()
	old := q.now
	q.now = next
	return errors.Join(q.moveNew(old, conns, known), old.Close())
}

// moveNew moves what programs put into a queue before it was replaced, and after
// its connections were listed. Connections that have ended since their last turn stay behind.
func (q *turnQueue) moveNew(from *ebpf.Map, conns *connTable, known map[uint64]bool) error {
	for {
		var c tcTracked
		err := from.LookupAndDelete(nil, &c)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err == nil && !known[c.Id] && conns.mayHave(&c) {
			err = q.now.Put(nil, &c)
		}
		if err != nil && !errors.Is(err, unix.E2BIG) {
			return fmt.Errorf("move what map %s holds: %w", turnsMap, err)
		}
	}
}

// mayHave reports whether a turn is one of a connection of the table, or a mark.
func (t *connTable) mayHave(c *tcTracked) bool {
	var e tcConn
	return c.Id == 0 || !errors.Is(t.m.Lookup(&c.Answers, &e), ebpf.ErrKeyNotExist)
}

func (q *turnQueue) close() error {
	if q == nil || q.now == nil {
		return nil
	}
	return q.now.Close()
}
