package packet

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Strays tells what has become of connections that the node didn't know; nil if no
// program runs.
func Strays(ctx context.Context, dir string) (found *kernel.Strays, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := pins.OpenIfThere(dir, tcMapStrays)
	if err != nil || m == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	forwarded, errForwarded := maps.Sum(m, uint32(tcStraySTRAY_FORWARDED))
	reset, errReset := maps.Sum(m, uint32(tcStraySTRAY_RESET))
	again, errAgain := maps.Sum(m, uint32(tcStraySTRAY_FORWARDED_AGAIN))
	if err := errors.Join(errForwarded, errReset, errAgain); err != nil {
		return nil, fmt.Errorf("read map strays: %w", err)
	}
	return &kernel.Strays{Forwarded: forwarded, Reset: reset, ForwardedAgain: again}, nil
}
