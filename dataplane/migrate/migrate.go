// Package migrate moves established connections when one data plane takes the place of
// another. All of them are moved to conntrack: it goes on translating connections under
// any plane, also those that a plane translated by itself. So planes know nothing of each
// other.
//
// The agent's switcher calls [Move] once the new plane is in force, and then removes the
// old plane. A plane whose connections conntrack translates anyway has no
// [Connections]. What planes leave in the kernel for others to see meanwhile is in
// marks.go.
//
// Files: migrate.go has the steps and their order, insert.go what conntrack may answer,
// marks.go what planes can see of each other.
package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/internal/conntrack"
)

// Connections are those of a plane that translates packets by itself.
type Connections interface {
	// Leave lists the connections in the parts in which they leave the plane: each is
	// frozen for as long as it takes to move it. There are none if nothing of the plane
	// is in the kernel.
	Leave(ctx context.Context) ([]Source, error)
	// Import tells the plane in force of connections that conntrack has just been
	// given. Their packets are frozen until it returns.
	Import(ctx context.Context, flows []conntrack.Flow) error
}

// Source is a part of the connections that a plane translates by itself. The methods are
// called in this order, once each, and Thaw in any case, also if Freeze failed.
type Source interface {
	// Freeze drops the packets of the connections from now on, to be sent again, so
	// that nobody answers them who doesn't know the connection. It is short, since
	// senders wait twice as long each time.
	Freeze(ctx context.Context) error
	// Export lists the connections as conntrack is to have them, without those that
	// have ended.
	Export(ctx context.Context) ([]conntrack.Flow, error)
	// Release makes place for them in conntrack: what it has seen of them so far is
	// forgotten, and whatever would take their entries away again.
	Release(ctx context.Context, flows []conntrack.Flow) error
	// Thaw lets packets pass. The plane has given up all connections but those
	// in stays, which conntrack had no room for: it goes on with them if it can. If Export
	// was not reached, stays is nil and moved is false.
	Thaw(ctx context.Context, moved bool, stays []conntrack.Flow) error
}

// Move moves the connections of a plane to conntrack, in the network namespace of the
// calling thread, and tells the plane that is in force, if it wants to know. Both may be
// nil. A flow that conntrack can't have in this kernel is left out with a warning. If it
// has no room for some, the others are moved, and the error says how many are not. Calling
// it again, also after the process was killed in it, is always right.
func Move(ctx context.Context, from, to Connections) error {
	if from == nil {
		return nil
	}
	parts, err := from.Leave(ctx)
	problems := []error{wrap("list", err)}
	for _, part := range parts {
		problems = append(problems, move(ctx, part, conntracks, to))
	}
	return errors.Join(problems...)
}

// ToConntrack moves a part of a plane's connections; see [Move].
func ToConntrack(ctx context.Context, from Source) error { return move(ctx, from, conntracks, nil) }

var conntracks = table{(*conntrack.Flow).Insert, (*conntrack.Flow).Clear}

func move(ctx context.Context, from Source, through table, to Connections) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	flows, err := export(ctx, from)
	// What was begun is finished, whatever becomes of ctx.
	ctx = context.WithoutCancel(ctx)
	if err != nil {
		return errors.Join(err, wrap("thaw", from.Thaw(ctx, false, nil)))
	}
	// Connections that are released are conntrack's or nobody's, also if others are not.
	problems := []error{wrap("release", from.Release(ctx, flows))}
	moved, stays, err := through.insertAll(flows)
	if err != nil {
		problems = append(problems, fmt.Errorf("%d of %d connections were not handed over: %w", len(stays), len(flows), err))
	}
	if to != nil {
		problems = append(problems, wrap("import", to.Import(ctx, moved)))
	}
	return errors.Join(append(problems, wrap("thaw", from.Thaw(ctx, true, stays)))...)
}

func export(ctx context.Context, from Source) ([]conntrack.Flow, error) {
	if err := from.Freeze(ctx); err != nil {
		return nil, wrap("freeze", err)
	}
	flows, err := from.Export(ctx)
	return flows, wrap("export", err)
}

func wrap(step string, err error) error {
	if err != nil {
		return fmt.Errorf("%s connections: %w", step, err)
	}
	return nil
}
