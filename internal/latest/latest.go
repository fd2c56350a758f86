// Package latest hands a value that changes from who knows it to those in the same process who
// follow it: only the latest one counts, and nobody waits for anybody.
package latest

import "sync"

// Value is one that changes. The zero Value holds T's.
type Value[T any] struct {
	mu    sync.Mutex
	value T
	next  chan struct{}
}

// Set puts a value in the place of the one before.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
	if v.next != nil {
		close(v.next)
		v.next = nil
	}
}

// Get returns the value, and a channel that is closed when there is another one.
func (v *Value[T]) Get() (value T, next <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = make(chan struct{})
	}
	return v.value, v.next
}
