package ebpf

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/dataplane/ebpf/watch"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Flows tells of connections.
func Flows(o kernel.Options) flow.Reader {
	return func(ctx context.Context, follow bool, to flow.Listener) error { return readFlows(ctx, o, follow, to) }
}

func readFlows(ctx context.Context, o kernel.Options, follow bool, to flow.Listener) error {
	dir, err := pins.NodeDir()
	if err != nil {
		return err
	}
	if follow {
		cgroup, _, err := sock.FindCgroup(o)
		if err != nil {
			return err
		}
		return watch.Connections(ctx, dir, cgroup, to)
	}
	return errors.Join(packet.List(dir, to.Event), sock.List(dir, to.Event))
}
