// Package dataplane is the seam between what a node shall do ([model.Table])
// and the five ways of making its kernel do it: the interface and the one list
// of planes. The planes themselves are the folders below.
package dataplane

import (
	"context"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Plane makes the kernel of one node do what a table says. Methods are called
// by one goroutine at a time.
//
// Beside what the table says in so many words, every plane owes:
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
	// Apply makes the kernel agree with want, in an order in which no packet
	// is lost that was and is served. It is idempotent; the plane keeps the
	// last table that it applied in full and works out with want.Since what
	// there is to do. The first Apply, one after an error, and one with verify
	// set compare with what the kernel holds instead of trusting that memory:
	// what an earlier process left is adopted, what others broke is repaired.
	// On error some of want may be in force; calling again is always right.
	// A kernel.MissingError says that it never will be on this machine.
	Apply(ctx context.Context, want *model.Table, verify bool) error
	// Objects reads back what the kernel holds of this plane, sorted by kind
	// and name. It equals what the plane's Render says of the applied table,
	// less what only serves a feature that Lacks names for this machine, at
	// which Render doesn't look.
	Objects(ctx context.Context) ([]kernel.Object, error)
	// Remove takes everything of this plane out of the kernel, whoever of it
	// put it there; Apply need not have been called. Nothing there is no error.
	//
	// Another plane may be in force by then, which serves the same packets as
	// soon as this one lets them pass. None of them may be lost, so:
	//   - what refuses and drops goes before what translates: a packet that this
	//     plane doesn't translate any more is the other's to serve;
	//   - where packets enter goes before what those that have entered still
	//     need (lookups, masquerading), and kernel.Quiesce comes between;
	//   - connections that are established go on, by what conntrack remembers of
	//     them; a plane that has them elsewhere hands them over to it, or is a
	//     Retirer.
	Remove(ctx context.Context) error
	// Lacks lists what this plane doesn't do on this machine of what a model
	// can ask for.
	Lacks() []kernel.Lack
}

// Checker is what planes offer beside Plane that can compare with the kernel while
// changes go on: reading back takes half a second at 10,000 Services.
type Checker interface {
	// Check tells what differs between what the kernel holds and what Apply has left
	// there of a table, the last that it applied in full, and changes nothing. Calls
	// come as Counter's do. A change that is applied meanwhile may be among it.
	Check(ctx context.Context, of *model.Table) (kernel.Differences, error)
	// ApplyChecked is Apply with verify after Check has found that all agrees: it
	// looks after everything but what Check has compared.
	ApplyChecked(ctx context.Context, want *model.Table) error
}

// Counter is what planes offer beside Plane that count the traffic of frontends.
type Counter interface {
	// Counters reads what has been counted, in any order; frontends without
	// traffic may be missing, and frontends that are gone may still be there.
	// Calls come one at a time, but also while another method of the plane runs,
	// and must neither wait for that nor change anything.
	Counters(ctx context.Context) ([]kernel.Count, error)
}

// BackendCounter is what planes offer beside Plane that count the traffic of single
// backends. Calls come as Counter's do.
type BackendCounter interface {
	// BackendCounts reads what has been counted of the backends in a table; those
	// without traffic may be missing.
	BackendCounts(ctx context.Context, of *model.Table) ([]kernel.BackendCount, error)
}

// Filler is what planes offer beside Plane whose programs keep maps of what they
// see. Calls come as Counter's do.
type Filler interface {
	Fills(ctx context.Context) ([]kernel.Fill, error)
}

// Dropper is what planes offer beside Plane that drop packets because something
// went wrong, and know why. Calls come as Counter's do.
type Dropper interface {
	// Drops reads how many packets that were, for every reason that there is.
	Drops(ctx context.Context) ([]kernel.Drop, error)
}

// PacketCounter is what planes offer beside Plane that count packets for
// kube-proxy's metrics. Calls come as Counter's do.
type PacketCounter interface {
	Packets(ctx context.Context) (kernel.Packets, error)
}

// Preparer is what planes offer beside Plane whose first Apply has work to do that
// doesn't depend on the table: Prepare does it, while the table is in the making.
// It may run beside another method, which waits where it must, and changes nothing
// for packets. What it fails in, the first Apply tries again.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Initializer is what planes offer beside Plane whose Apply sets something that
// takes more than CAP_NET_ADMIN, or a writable /proc/sys: Init sets it, so that
// Apply finds it set.
type Initializer interface {
	Init(ctx context.Context) error
}

// Yielder is what planes offer beside Plane that see packets before netfilter
// does, or choose for sockets: Yield has them let packets to a frontend pass, as
// if nobody served it, until the term is over, since cluster DNS answers them on
// this node. The term ends by itself, whatever becomes of this process. Calls
// come as Counter's do, and also before the first Apply.
type Yielder interface {
	Yield(front model.Key, term time.Duration) error
}
