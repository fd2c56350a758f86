package maps

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
)

// counters is struct counters of bpf/types.h.
type counters struct {
	Connections, Packets, Bytes uint64
	NotAllowed, NoBackend       uint64
}

func (c *counters) add(o counters) {
	c.Connections += o.Connections
	c.Packets += o.Packets
	c.Bytes += o.Bytes
	c.NotAllowed += o.NotAllowed
	c.NoBackend += o.NoBackend
}

// countReader reads the counters of ids, all of a chunk at once where the kernel
// can (BPF_MAP_LOOKUP_BATCH of per-CPU arrays, Linux 5.13).
type countReader struct {
	outer  pins.Inner
	cpus   int
	chunks map[uint32][]counters // what all processors have counted
}

func openCounts(dir string) (*countReader, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count processors: %w", err)
	}
	outer, err := ebpf.LoadPinnedMap(filepath.Join(dir, pins.Layout, "counts"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open map counts: %w", err)
	}
	return &countReader{pins.InnerOf(outer, dir, "counts"), cpus, map[uint32][]counters{}}, nil
}

// read says what was counted under an id.
func (r *countReader) read(id uint32) (counters, error) {
	n := id / program.ChunkSize
	if _, known := r.chunks[n]; !known {
		sums, err := r.readChunk(n)
		if err != nil {
			return counters{}, fmt.Errorf("read map of counters %d: %w", n, err)
		}
		r.chunks[n] = sums
	}
	return r.chunks[n][id%program.ChunkSize], nil
}

func (r *countReader) readChunk(n uint32) (sums []counters, err error) {
	sums = make([]counters, program.ChunkSize)
	m, err := r.outer.Open(n)
	if err != nil || m == nil { // an id that was given just now
		return sums, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	keys, each := make([]uint32, program.ChunkSize), make([]counters, program.ChunkSize*r.cpus)
	var cursor ebpf.MapBatchCursor
	_, err = m.BatchLookup(&cursor, keys, each, nil)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return sums, readSingly(m, sums)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that this was all
		return nil, err
	}
	for i, key := range keys {
		for _, c := range each[i*r.cpus : (i+1)*r.cpus] {
			sums[key].add(c)
		}
	}
	return sums, nil
}

// readSingly is for kernels that can't read many at once.
func readSingly(m *ebpf.Map, sums []counters) error {
	for i := range sums {
		var each []counters
		if err := m.Lookup(uint32(i), &each); err != nil {
			return err
		}
		for _, c := range each {
			sums[i].add(c)
		}
	}
	return nil
}

func (r *countReader) close() error { return r.outer.Outer.Close() }

// Sum is what all processors have counted in a place of a map.
func Sum(m *ebpf.Map, place uint32) (sum uint64, err error) {
	var each []uint64
	if err := m.Lookup(place, &each); err != nil {
		return 0, err
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

// Evicted is of the same enum: connections that had to go for others.
const Evicted = 8

// Overflows says if maps that programs fill have been full since it last said so.
func (s *Store) Overflows() error {
	var errs []error
	for counter, what := range map[string]string{"overflow": "the eBPF map sockets", "drops": "the eBPF map conns"} {
		place := uint32(0)
		if counter == "drops" {
			place = Evicted
		}
		sum, err := Sum(s.Maps[counter], place)
		if err != nil {
			return fmt.Errorf("read map %s: %w", counter, err)
		}
		if last, known := s.full[counter]; known && sum > last {
			errs = append(errs, &kernel.FullError{What: what, LeftOut: int(sum - last)})
		}
		if s.full == nil {
			s.full = map[string]uint64{}
		}
		s.full[counter] = sum
	}
	return errors.Join(errs...)
}
