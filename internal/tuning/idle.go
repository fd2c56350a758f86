package tuning

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	idleAfter    = 2 * time.Second // of a collection, if none follows
	returnPause  = 5 * time.Second // between two times
	worthReturn  = 4 << 20
	freeBytes    = "/memory/classes/heap/free:bytes"
	garbageBytes = "/memory/classes/heap/objects:bytes"
	liveBytes    = "/gc/heap/live:bytes"
)

// idleReturn gives memory back to the system once collections no longer follow each
// other. Go itself keeps a tenth more than it expects to need, which is ten megabytes
// of a gateway's sixty.
type idleReturn struct {
	bytes func() uint64 // that may be given back
	free  func()

	mu    sync.Mutex
	timer *time.Timer
	last  time.Time
}

func newIdleReturn() *idleReturn { return &idleReturn{bytes: returnable, free: debug.FreeOSMemory} }

// collected has memory given back if no collection follows soon.
func (i *idleReturn) collected() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer == nil {
		i.timer = time.AfterFunc(idleAfter, i.idle)
	} else {
		i.timer.Reset(idleAfter)
	}
}

func (i *idleReturn) idle() {
	due, in := i.isDue(time.Now(), i.bytes())
	switch {
	case due:
		i.free()
	case in > 0:
		i.mu.Lock()
		defer i.mu.Unlock()
		i.timer.Reset(in)
	}
}

// isDue reports whether memory is given back now, which is if it is worth a collection
// and the last time was long ago; or when it will be, 0 if it isn't worth it.
func (i *idleReturn) isDue(now time.Time, bytes uint64) (due bool, in time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if bytes < worthReturn {
		return false, 0
	}
	if in = i.last.Add(returnPause).Sub(now); in > 0 && !i.last.IsZero() {
		return false, in
	}
	i.last = now
	return true, 0
}

// returnable is what the process has of the system and doesn't use.
func returnable() uint64 {
	s := []metrics.Sample{{Name: freeBytes}, {Name: garbageBytes}, {Name: liveBytes}}
	metrics.Read(s)
	free, objects, live := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	return free + objects - min(live, objects)
}
