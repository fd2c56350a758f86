// Package flow holds what data planes tell of connections to whoever reads: the same
// for all of them, without names of Services, which the planes don't know.
package flow

import (
	"context"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/model"
)

// Kind is what became of a connection.
type Kind string

// The kinds of events.
const (
	Began   Kind = "began"   // it is led to a backend
	Open    Kind = "open"    // it was there when it was asked for
	Ended   Kind = "ended"   // it is over, or forgotten
	Refused Kind = "refused" // the client was told so
	Dropped Kind = "dropped" // without a word
)

// Event is about one connection. What isn't known is zero.
type Event struct {
	Kind     Kind           `json:"kind"`
	Time     time.Time      `json:"time"`
	Proto    model.Protocol `json:"proto"`
	Client   netip.AddrPort `json:"client,omitzero"`
	Frontend netip.AddrPort `json:"frontend,omitzero"`
	Backend  netip.AddrPort `json:"backend,omitzero"` // Frontend if it isn't translated
	Source   netip.AddrPort `json:"source,omitzero"`  // what the backend sees of the client, where that is known
	Replied  bool           `json:"replied,omitempty"`
	// Counted says that In (the client's) and Out (the backend's) are bytes.
	Counted bool          `json:"counted,omitempty"`
	In      uint64        `json:"in,omitempty"`
	Out     uint64        `json:"out,omitempty"`
	Took    time.Duration `json:"took,omitempty"`   // from its beginning to its end
	Reason  string        `json:"reason,omitempty"` // why it was refused or dropped
}

// Listener is told of connections, one call at a time.
type Listener struct {
	Event func(Event)
	Note  func(string) // what is missing, sampled or lost
	Began func()       // what happens from now on is told; may be nil
}

// Begin says that what happens from now on is told.
func (l Listener) Begin() {
	if l.Began != nil {
		l.Began()
	}
}

// Reader tells of connections in the network namespace of the calling thread: those that
// there are, or with follow those that begin, end, and are refused, until ctx is done.
// Nothing is spent on it while nobody reads, and the kernel takes away what it needed
// when this process ends, however it does.
type Reader func(ctx context.Context, follow bool, to Listener) error
