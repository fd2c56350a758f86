package link

import (
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// mostForeign bounds the senders that are named.
	mostForeign = 8
	// foreignFor is how long a sender is named after its last frame.
	foreignFor = time.Minute
)

// Foreign are the senders of frames of ours that are signed with another key: nodes of another
// cluster, or of this one with another key.
type Foreign struct {
	// Heard is called, not to be blocked, when frames come of a sender who isn't named yet. Nil
	// is nothing.
	Heard func()

	mu     sync.Mutex
	frames uint64
	last   map[[6]byte]time.Time
}

// note counts a frame.
func (f *Foreign) note(now time.Time, mac [6]byte) {
	if f.take(now, mac) && f.Heard != nil {
		f.Heard()
	}
}

// take reports whether the sender is to be named and wasn't before.
func (f *Foreign) take(now time.Time, mac [6]byte) (isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames++
	if f.last == nil {
		f.last = map[[6]byte]time.Time{}
	}
	_, known := f.last[mac]
	if !known && len(f.last) >= mostForeign {
		f.expire(now)
	}
	if known || len(f.last) < mostForeign {
		f.last[mac] = now
		return !known
	}
	return false
}

func (f *Foreign) expire(now time.Time) {
	maps.DeleteFunc(f.last, func(_ [6]byte, last time.Time) bool { return now.Sub(last) > foreignFor })
}

// Senders lists the MACs of those that were heard lately.
func (f *Foreign) Senders(now time.Time) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
	for mac := range f.last {
		list = append(list, net.HardwareAddr(mac[:]).String())
	}
	slices.Sort(list)
	return list
}

// Forget forgets all that was heard: this node's keys have changed.
func (f *Foreign) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.last)
}

// Frames counts all frames with a foreign signature.
func (f *Foreign) Frames() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frames
}
