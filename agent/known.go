package agent

import (
	"cmp"
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/lastknown"
)

// keepKnown has what the API says saved in KnownDir or the state directory, for a
// start at which no server answers. The default state directory doesn't outlive
// a boot: nothing is saved there. The result closes the file, and must be called.
func (a *Agent) keepKnown(ctx context.Context, group *errgroup.Group) (func() error, error) {
	dir := cmp.Or(a.config.KnownDir, a.config.Plane.StateDirectory())
	if dir == kernel.DefaultStateDir {
		return func() error { return nil }, nil
	}
	store, err := lastknown.Open(dir, a.config.NodeName, a.config.Log)
	if err != nil {
		return func() error { return nil }, err
	}
	a.known = store
	group.Go(func() error { store.Run(ctx, a.config.Log); return nil })
	return store.Close, nil
}
