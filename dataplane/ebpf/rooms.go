package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// The maps that grow, and their places in the map noted: enum filled of bpf/maps.h.
var grows = map[string]int{connsMap: 0, socketsMap: 1, clientsMap: 2, flowsMap: 3, answersMap: 4}

const (
	connsMap   = "conns_2"
	socketsMap = "sockets_2"
	clientsMap = "clients_2"
	flowsMap   = "flows_2"
	answersMap = "answers_2"
)

// earlier are the names that maps with the same elements had in earlier versions.
// They are taken over: programs of that version go on with them until they are
// replaced.
var earlier = map[string]string{connsMap: "conns_1", socketsMap: "sockets", clientsMap: "clients", flowsMap: "flows", answersMap: "answers"}

// lookEvery is how often the agent sees how much was put into maps. A map of the
// least size is filled in that time by 80,000 elements a second.
const lookEvery = 100 * time.Millisecond

// openGrowing opens the maps that grow, as far as the objects have them.
func (s *store) openGrowing(specs map[string]*ebpf.MapSpec) error {
	var group errgroup.Group
	s.growing = map[string]*growing{}
	for name := range grows {
		outer := s.maps[name]
		if outer == nil || specs[name] == nil {
			continue
		}
		g := &growing{name: name, outer: outer, spec: inner(specs[name])}
		if name == connsMap {
			g.stays = isUnnamed
		}
		s.growing[name] = g
		group.Go(func() error { return g.open(filepath.Join(s.dir, layout)) })
	}
	return group.Wait()
}

// openGrown opens a pinned map that grows, also that of an earlier version; nil if
// there is none.
func openGrown(dir, name string) (*growing, error) {
	outer, err := openIfThere(dir, name)
	if err != nil {
		return nil, err
	}
	g := &growing{name: name, outer: outer}
	if outer == nil {
		m, err := openIfThere(dir, earlier[name])
		if err != nil || m == nil {
			return nil, err
		}
		g.maps.Store(&generations{now: m})
		return g, nil
	}
	at, err := g.generations()
	if err != nil || at.now == nil {
		return nil, errors.Join(err, outer.Close())
	}
	g.maps.Store(&at)
	return g, outer.Close()
}

// forgetEarlier takes away the names of maps that were taken over, when programs
// of earlier versions run no more.
func (s *store) forgetEarlier() error {
	for name := range s.growing {
		err := os.Remove(filepath.Join(s.dir, layout, earlier[name]))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget map %s: %w", earlier[name], err)
		}
	}
	return nil
}

// keepRoom makes maps larger that become full.
func (s *store) keepRoom() error {
	put, err := s.noted()
	if err != nil {
		return err
	}
	var errs []error
	for name, g := range s.growing {
		errs = append(errs, g.keepRoom(put[grows[name]]))
	}
	return errors.Join(errs...)
}

// noted is how many elements programs have put into each map that grows.
func (s *store) noted() ([]uint64, error) {
	var each [][]byte
	if err := s.maps["noted"].Lookup(uint32(0), &each); err != nil {
		return nil, fmt.Errorf("read map noted: %w", err)
	}
	sums := make([]uint64, len(grows))
	for _, one := range each {
		v := unpacker(one)
		for i := range sums {
			sums[i] += v.u64()
		}
	}
	return sums, nil
}

// keepingRoom keeps room until ctx is done. After an error it waits a while, since
// the kernel may have no memory.
func (s *store) keepingRoom(ctx context.Context) {
	const pause = 5 * time.Second
	next := time.NewTimer(lookEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		wait := lookEvery
		if err := s.keepRoom(); err != nil {
			slog.Warn("eBPF maps have not been made larger", "error", err)
			wait = pause
		}
		next.Reset(wait)
	}
}

// roomLimit is how many elements of this size a map may have: as many as fit into a
// thirty-second of the machine's memory.
func roomLimit(key, value uint32) (uint32, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the size of the memory: %w", err)
	}
	const overhead = 64 // of the kernel, for each element
	n := info.Totalram * uint64(info.Unit) / 32 / uint64(key+value+overhead)
	return uint32(1) << (bits.Len64(min(n, 1<<30)) - 1), nil
}
