package sock

import (
	"errors"
	"sync"
)

// lateResets is what is done while nobody asks: for which sockets, and errors of it.
type lateResets struct {
	mu       sync.Mutex
	expected map[uint64]bool
	err      error
}

// expect reports whether a socket isn't expected yet, which it is from now on.
func (l *lateResets) expect(cookie uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expected[cookie] {
		return false
	}
	if l.expected == nil {
		l.expected = map[uint64]bool{}
	}
	l.expected[cookie] = true
	return true
}

// finish says how it went with sockets.
func (l *lateResets) finish(err error, sockets []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
	for _, cookie := range sockets {
		delete(l.expected, cookie)
	}
}

func (l *lateResets) take() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	l.err = nil
	return err
}
