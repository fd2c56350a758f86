package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/model"
)

// Yield implements dataplane.Yielder. It writes to the map that is pinned for
// this node; without one, no packet is looked at yet.
func (p *Plane) Yield(front model.Key, term time.Duration) (err error) {
	yields, err := ebpf.LoadPinnedMap(filepath.Join(p.dir, layout, "yields"), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open map yields: %w", err)
	}
	defer func() { err = errors.Join(err, yields.Close()) }()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	until := now.Nano() + term.Nanoseconds()
	if err := yields.Put([]byte(frontendKey(front)), uint64(until)); err != nil {
		return fmt.Errorf("write element of map yields: %w", err)
	}
	return nil
}
