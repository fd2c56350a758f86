// Package dataplane has the interface that every data plane implements, and the
// one list of planes. A plane makes the kernel of a node do what a [model.Table]
// says. The planes are the folders below.
package dataplane

import (
	"context"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane makes the kernel of one node do what a table says. One goroutine at a
// time calls its methods, except for Prepare and Read, which may be called
// while another method runs: they wait where they must.
//
// Beyond what the table says in so many words, every plane owes:
//   - hairpin: a pod that reaches itself through a frontend is masqueraded;
//   - nothing goes out to an unserved address of Settings.Reserved, whatever
//     the protocol;
//   - a refusal is a RST for TCP, an ICMP port-unreachable error for UDP;
//   - UDP flows move on: when a backend is gone from a pool (Pool.Gone), when a
//     frontend comes or goes, or when a pool gets its first backend, flows of
//     that frontend which don't lead to a current or draining backend are
//     forgotten, and no others;
//   - TCP connections of gone backends are treated as Pool.Orphans says;
//   - a packet of a translated flow that conntrack calls INVALID never reaches
//     a client with the backend's address, which would reset its connection.
type Plane interface {
	// Prepare does work of the first Apply ahead of it; see kernel.Preparation.
	// What it fails in, the first Apply tries again.
	Prepare(ctx context.Context, what kernel.Preparation) error
	// Apply makes the kernel agree with want, in an order in which no packet
	// is lost that was and is served. It is idempotent; the plane keeps the
	// last table that it applied in full and works out with want.Since what
	// there is to do. The first Apply, one after an error, and one that verifies
	// compare with what the kernel holds instead of trusting that memory: what
	// an earlier process left is adopted, what others broke is repaired.
	//
	// The result says which parts of want can't be in force while all else is:
	// a pool that is too large, a port that another process has. An error says
	// that want as a whole is not in force, though some of it may be; calling
	// again is always right. A kernel.MissingError says that it never will be
	// on this machine.
	Apply(ctx context.Context, want *model.Table, verify kernel.Verification) (kernel.Result, error)
	// Read tells what the kernel holds and what was counted, as far as it is
	// asked, and changes nothing. Calls come one at a time. The objects are
	// sorted by kind and name; they equal what the plane's Render says of the
	// applied table, less what only serves a feature that Unsupported names,
	// at which Render doesn't look.
	Read(ctx context.Context, what kernel.Query) (kernel.Reading, error)
	// Remove takes everything of this plane out of the kernel, whichever process
	// put it there; Apply need not have been called. Nothing there is no error.
	//
	// Another plane may be in force by then, which serves the same packets as
	// soon as this one lets them pass. None of them may be lost, so:
	//   - what refuses and drops goes before what translates: a packet that this
	//     plane doesn't translate any more is the other's to serve;
	//   - where packets enter goes before what those that have entered still
	//     need (lookups, masquerading), and kernel.Quiesce comes between;
	//   - connections that are established go on, by what conntrack remembers of
	//     them; a plane that has them elsewhere moves to it what nobody has moved
	//     yet, or, if asked to kernel.HandOver, serves them to their end.
	Remove(ctx context.Context, how kernel.Removal) error
	// Connections are those that this plane translates by itself, to be moved
	// before Remove, and by which it learns of those that others have left; nil if
	// conntrack has them all.
	Connections() migrate.Connections
	// Unsupported lists what this plane doesn't do on this machine of what a
	// model can ask for.
	Unsupported() []kernel.Unsupported
	// Close gives up what the plane holds in this process. What is in the kernel
	// stays.
	Close() error
}
