package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/routelocalnet"
)

// Init does what an agent needs all privileges for, so that one with
// CAP_NET_ADMIN alone, and a /proc and /sys that it can't write, is enough
// afterwards (kube-proxy's --init-only). What it can't do is an error.
func Init(ctx context.Context, config Config) error {
	failed := []error{config.Conntrack.Apply()}
	if config.Compile.LocalhostNodePorts {
		// Planes leave it as it is where it is set already.
		if err := os.WriteFile(routelocalnet.Path, []byte("1"), 0); err != nil {
			failed = append(failed, fmt.Errorf("set route_localnet, which node ports on localhost need: %w", err))
		}
	}
	failed = append(failed, prepare(ctx, dataplane.Kinds(), config))
	return errors.Join(failed...)
}

// prepare prepares the mode that is configured. For AutoMode, that is every one
// that an agent with less privileges may choose: those before the first that
// CAP_NET_ADMIN is enough for, and that one.
func prepare(ctx context.Context, kinds []dataplane.Kind, config Config) error {
	var failed []error
	for {
		c, plane, err := choose(kinds, config.Mode, config.Plane, config.Log)
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		// To make a plane loads the kernel's modules for it.
		failed = append(failed, prepareOne(ctx, c.mode, plane))
		i := slices.IndexFunc(kinds, func(k dataplane.Kind) bool { return k.Name == c.mode })
		if config.Mode != AutoMode || !kinds[i].Privileged {
			return errors.Join(failed...)
		}
		kinds = kinds[i+1:]
	}
}

func prepareOne(ctx context.Context, mode string, plane dataplane.Plane) error {
	err := plane.Prepare(ctx, kernel.LessPrivilege)
	if err != nil {
		err = fmt.Errorf("prepare %s mode: %w", mode, err)
	}
	return errors.Join(err, plane.Close())
}
