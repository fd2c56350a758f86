package connections

import (
	"context"
	"errors"

	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/diagnose/connections/watch"
	"github.com/fairway-net/fairway/internal/flow"
	"github.com/fairway-net/fairway/internal/kernel"
)

// inPrograms reads the maps of ebpf mode, and follows what passes its programs.
func inPrograms(ctx context.Context, o kernel.Options, follow bool, to flow.Listener) error {
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
