package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/model"
)

// Bypass lets packets to a frontend pass for a term: see dataplane.Kind. It
// writes to the map that is pinned for the node that this process lives in;
// without one, no packet is looked at yet.
func Bypass(front model.Key, term time.Duration) (err error) {
	dir, err := pins.NodeDir()
	if err != nil {
		return err
	}
	yields, err := ebpf.LoadPinnedMap(filepath.Join(dir, pins.Layout, "yields"), nil)
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
	if err := yields.Put([]byte(program.FrontendKey(front)), uint64(until)); err != nil {
		return fmt.Errorf("write element of map yields: %w", err)
	}
	return nil
}
