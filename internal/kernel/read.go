package kernel

import (
	"context"
	"errors"
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// Query says what is wanted of Plane.Read. What isn't asked for isn't read:
// listing objects takes half a second at 10,000 Services.
type Query struct {
	// Objects asks for all of the plane's kernel objects. It must not be asked
	// while another method of the plane runs; all else may be.
	Objects bool
	// Compare asks for what differs between what the kernel holds and what Apply
	// has left there of this table, the last that it applied. A change that is
	// applied meanwhile may be among it.
	Compare *model.Table
	// Frontends asks what was counted of frontends, Backends of the backends in
	// this table.
	Frontends bool
	Backends  *model.Table
	// Packets asks what was counted whatever the frontend, Drops for packets
	// dropped because something went wrong, Strays for those of connections that
	// the node didn't know, Maps for how full maps are.
	// Drivers asks which interfaces have packets handled in their drivers.
	Packets, Drops, Strays, Maps, Drivers bool
	// Connections asks which connections this node has to these addresses of frontends.
	Connections map[netip.Addr]bool
}

// Reading answers a Query. What wasn't asked for is nil, and so is what the
// plane can't tell.
type Reading struct {
	Objects     []Object
	Differences *Differences
	// Frontends are in any order. Those without traffic may be missing, and those
	// that are gone may still be there.
	Frontends []Count
	// Backends without traffic may be missing.
	Backends []BackendCount
	Packets  *Packets
	Drops    []DropStats
	Strays   *Strays
	Maps     []MapUsage
	Drivers  *Drivers
	// Connections that are open; addresses without any may be missing.
	Connections map[netip.Addr][]Connection
}

// Connection is one of a client's to an address of a frontend.
type Connection struct {
	Client netip.AddrPort
	Port   uint16 // of the frontend
	Proto  model.Protocol
}

// Readers are the functions that a plane reads with; nil stands for what it can't
// tell.
type Readers struct {
	Objects   func(context.Context) ([]Object, error)
	Compare   func(context.Context, *model.Table) (Differences, error)
	Frontends func(context.Context) ([]Count, error)
	Backends  func(context.Context, *model.Table) ([]BackendCount, error)
	Packets   func(context.Context) (Packets, error)
	Drops     func(context.Context) ([]DropStats, error)
	Strays    func(context.Context) (*Strays, error)
	Maps      func(context.Context) ([]MapUsage, error)
	Drivers   func(context.Context) (*Drivers, error)
	// Connections lists those to some addresses.
	Connections func(context.Context, map[netip.Addr]bool) (map[netip.Addr][]Connection, error)
}

// Read answers a query by those of the functions that it needs. If one fails, the
// answers of the others are still there.
func (r Readers) Read(ctx context.Context, q Query) (Reading, error) {
	var out Reading
	var failed [10]error
	if q.Objects && r.Objects != nil {
		out.Objects, failed[0] = r.Objects(ctx)
	}
	if q.Compare != nil && r.Compare != nil {
		var found Differences
		if found, failed[1] = r.Compare(ctx, q.Compare); failed[1] == nil {
			out.Differences = &found
		}
	}
	if q.Frontends && r.Frontends != nil {
		out.Frontends, failed[2] = r.Frontends(ctx)
	}
	if q.Backends != nil && r.Backends != nil {
		out.Backends, failed[3] = r.Backends(ctx, q.Backends)
	}
	if q.Packets && r.Packets != nil {
		var counted Packets
		if counted, failed[4] = r.Packets(ctx); failed[4] == nil {
			out.Packets = &counted
		}
	}
	if q.Drops && r.Drops != nil {
		out.Drops, failed[5] = r.Drops(ctx)
	}
	if q.Maps && r.Maps != nil {
		out.Maps, failed[6] = r.Maps(ctx)
	}
	if q.Strays && r.Strays != nil {
		out.Strays, failed[7] = r.Strays(ctx)
	}
	if q.Connections != nil && r.Connections != nil {
		out.Connections, failed[8] = r.Connections(ctx, q.Connections)
	}
	if q.Drivers && r.Drivers != nil {
		out.Drivers, failed[9] = r.Drivers(ctx)
	}
	return out, errors.Join(failed[:]...)
}
