package maps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
)

// The maps that grow, and their places in the map noted: enum filled of bpf/maps.h.
var InsertionCounters = map[string]int{ConnsMap: 0, SocketsMap: 1, clientsMap: 2, flowsMap: 3, answersMap: 4}

const (
	ConnsMap   = "conns_2"
	SocketsMap = "sockets_2"
	clientsMap = "clients_2"
	flowsMap   = "flows_2"
	answersMap = "answers_2"
)

// growInterval is how often the agent sees how much was put into maps. A map of the
// least size is filled in that time by 80,000 elements a second.
const growInterval = 100 * time.Millisecond

// openResizable opens the maps that grow, as far as the objects have them.
func (s *Store) openResizable(specs map[string]*ebpf.MapSpec) error {
	var group errgroup.Group
	s.Resizable = map[string]*Resizable{}
	for name := range InsertionCounters {
		outer := s.Maps[name]
		if outer == nil || specs[name] == nil {
			continue
		}
		g := &Resizable{name: name, outer: pins.InnerOf(outer, s.Dir, name), spec: Inner(specs[name])}
		s.Resizable[name] = g
		group.Go(func() error { return g.open() })
	}
	return group.Wait()
}

// OpenResizable opens a pinned map that grows; nil if there is none.
func OpenResizable(dir, name string) (*Resizable, error) {
	outer, err := pins.OpenIfThere(dir, name)
	if err != nil {
		return nil, err
	}
	if outer == nil {
		return nil, nil
	}
	g := &Resizable{name: name, outer: pins.InnerOf(outer, dir, name)}
	at, err := g.generations()
	if err != nil || at.Current == nil {
		return nil, errors.Join(err, outer.Close())
	}
	g.Maps.Store(&at)
	return g, outer.Close()
}

// Grow makes maps larger that become full.
func (s *Store) Grow() error {
	put, err := s.insertions()
	if err != nil {
		return err
	}
	var errs []error
	for name, g := range s.Resizable {
		errs = append(errs, g.growIfNeeded(put[InsertionCounters[name]]))
	}
	return errors.Join(errs...)
}

// insertions is how many elements programs have put into each map that grows.
func (s *Store) insertions() ([]uint64, error) {
	var each [][]byte
	if err := s.Maps["noted"].Lookup(uint32(0), &each); err != nil {
		return nil, fmt.Errorf("read map noted: %w", err)
	}
	sums := make([]uint64, len(InsertionCounters))
	for _, one := range each {
		v := program.Unpacker(one)
		for i := range sums {
			sums[i] += v.U64()
		}
	}
	return sums, nil
}

// GrowLoop keeps room until ctx is done. After an error it waits a while, since
// the kernel may have no memory.
func (s *Store) GrowLoop(ctx context.Context) {
	const pause = 5 * time.Second
	next := time.NewTimer(growInterval)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		wait := growInterval
		if err := s.Grow(); err != nil {
			slog.Warn("eBPF maps could not be enlarged", "error", err)
			wait = pause
		}
		next.Reset(wait)
	}
}

// maxEntries is how many elements of this size a map may have: as many as fit into a
// thirty-second of the machine's memory, or into an eighth of what the agent's
// cgroup may have, if that is less. The kernel charges maps to that cgroup.
func maxEntries(key, value uint32) (uint32, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the size of the memory: %w", err)
	}
	limit, err := cgroup.MemoryLimit()
	if err != nil {
		return 0, err
	}
	const overhead = 64 // of the kernel, for each element
	n := min(info.Totalram*uint64(info.Unit)/32, limit/8) / uint64(key+value+overhead)
	return uint32(1) << (bits.Len64(max(1, min(n, 1<<30))) - 1), nil
}

// Usage tells how full the maps are that the programs fill.
func Usage(ctx context.Context, dir string) (list []kernel.MapUsage, err error) {
	for name := range InsertionCounters {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, err := OpenResizable(dir, name)
		if err != nil || g == nil {
			return nil, err
		}
		now := g.Maps.Load().Current
		limit, limitErr := maxEntries(now.KeySize(), now.ValueSize())
		n, err := g.Count()
		if err := errors.Join(limitErr, err, g.Close()); err != nil {
			return nil, err
		}
		short, _, _ := strings.Cut(name, "_")
		list = append(list, kernel.MapUsage{Map: short, Entries: int(n), Size: int(g.Size()), Limit: int(max(limit, g.Size()))})
	}
	return list, nil
}
