package simulate

import (
	"fmt"
	"time"
)

// keyring is the cluster's keys as the API has them.
type keyring struct {
	published [][]byte // the newest first
	number    int
	rotating  bool
}

func (k *keyring) next() []byte {
	k.number++
	return []byte(fmt.Sprint("key ", k.number))
}

// learnKeysIn is how long agents take to learn of keys.
const learnKeysIn = 500 * time.Millisecond

// rotate gives the cluster another key: first beside the one that it has, then alone.
func (w *world) rotate() {
	if w.keys.rotating {
		return
	}
	w.trace("keys are rotated")
	w.keys.rotating = true
	old := w.keys.published[0]
	w.publish(w.keys.next(), old)
	w.after(3*learnKeysIn, func() {
		w.publish(w.keys.published[0])
		w.after(2*learnKeysIn, func() { w.keys.rotating = false })
	})
}

func (w *world) publish(keys ...[]byte) {
	w.keys.published = keys
	for _, m := range w.machines {
		w.after(w.some(learnKeysIn), func() {
			if m.out || m.agent == nil {
				return
			}
			m.keys.Set(keys...)
			if len(keys) == 1 {
				m.dropped = m.time()
			}
		})
	}
}
