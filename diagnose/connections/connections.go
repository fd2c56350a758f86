// Package connections tells of a node's connections to Services, for whoever reads: those
// that there are, or each as it begins, ends or is refused. Planes know nothing of it.
// Where connections are to be found follows from how a mode translates: in conntrack
// (netfilter.go), in the maps of the programs of ebpf mode (programs.go, with programs of
// the reader's own in watch), or in the relay of userspace mode.
package connections

import (
	"context"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dataplane/userspace"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Of reads the connections of a node on which a mode is in force.
func Of(kind dataplane.Kind, o kernel.Options) flow.Reader {
	switch {
	case kind.InConntrack:
		return inConntrack
	case kind.BeforeNetfilter:
		return func(ctx context.Context, follow bool, to flow.Listener) error { return inPrograms(ctx, o, follow, to) }
	}
	return func(ctx context.Context, follow bool, to flow.Listener) error { return inRelay(ctx, o, follow, to) }
}

// inRelay asks the relay; what has no listener the kernel refuses.
func inRelay(ctx context.Context, o kernel.Options, follow bool, to flow.Listener) error {
	read := func(ctx context.Context, to flow.Listener) error {
		return userspace.Flows(ctx, o.StateDirectory(), follow, to)
	}
	if !follow {
		return read(ctx, to)
	}
	return withDrops(ctx, to, read)
}
