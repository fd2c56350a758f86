package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/localnet"
)

// Init does what an agent needs all privileges for, so that one with
// CAP_NET_ADMIN alone, and a /proc and /sys that it can't write, is enough
// afterwards (kube-proxy's --init-only). What it can't do is an error.
func Init(ctx context.Context, config Config) error {
	failed := []error{config.Conntrack.Apply()}
	if config.Compile.LocalhostNodePorts {
		// Planes leave it as it is where it is set already.
		if err := os.WriteFile(localnet.Path, []byte("1"), 0); err != nil {
			failed = append(failed, fmt.Errorf("set route_localnet, which node ports on localhost need: %w", err))
		}
	}
	// To make a plane loads the kernel's modules for it.
	mode, plane, err := choose(dataplane.Kinds(), config.Mode, config.Plane, config.Log)
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	if p, ok := plane.(dataplane.Initializer); ok {
		if err := p.Init(ctx); err != nil {
			failed = append(failed, fmt.Errorf("prepare %s mode: %w", mode, err))
		}
	}
	if p, ok := plane.(io.Closer); ok {
		failed = append(failed, p.Close())
	}
	return errors.Join(failed...)
}
