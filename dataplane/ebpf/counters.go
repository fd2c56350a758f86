package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// counters is struct counters of bpf/types.h.
type counters struct {
	Connections, Packets, Bytes uint64
	NotAllowed, NoBackend       uint64
}

// Counters implements dataplane.Counter. Bytes stay 0: they are counted of backends.
func (p *Plane) Counters(ctx context.Context) (list []kernel.Count, err error) {
	elements, err := p.pinned(frontends)
	if err != nil || elements == nil {
		return nil, err
	}
	err = p.eachCount(ctx, elements, func(k unpacker, c counters) {
		if c.Connections+c.NotAllowed+c.NoBackend > 0 {
			list = append(list, kernel.Count{
				Frontend: k.key(), Connections: c.Connections,
				Refused: c.NotAllowed + c.NoBackend, NotAllowed: c.NotAllowed, NoBackend: c.NoBackend,
			})
		}
	})
	return list, err
}

// eachCount visits the elements of a table whose values begin with the id of
// counters, with what these have counted.
func (p *Plane) eachCount(ctx context.Context, elements map[string]string, visit func(key unpacker, c counters)) (err error) {
	reader, err := openCounts(p.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.close()) }()
	for key, value := range elements {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := unpacker(value)
		c, err := reader.read(v.u32())
		if err != nil {
			return err
		}
		visit(unpacker(key), c)
	}
	return nil
}

// BackendCounts implements dataplane.BackendCounter. Packets and bytes are those of
// the packet path: connections that are made at the socket go past whatever could
// count them.
func (p *Plane) BackendCounts(ctx context.Context, of *model.Table) (list []kernel.BackendCount, err error) {
	ids, err := p.pinned(names)
	if err != nil || ids == nil {
		return nil, err
	}
	elements, err := p.pinned(members)
	if err != nil || elements == nil {
		return nil, err
	}
	byName := make(map[string]model.PoolID, len(ids))
	for pool := range of.Pools() {
		byName[pool.ID.String()] = pool.ID
	}
	known := make(map[uint32]model.PoolID, len(ids))
	for key, value := range ids {
		k := unpacker(key)
		if pool, there := byName[strings.TrimRight(value, "\x00")]; there {
			known[k.u32()] = pool
		}
	}
	err = p.eachCount(ctx, elements, func(k unpacker, c counters) {
		if pool, there := known[k.u32()]; there && c.Connections+c.Packets > 0 {
			list = append(list, kernel.BackendCount{
				Pool: pool, Backend: k.endpoint(), Connections: c.Connections, Packets: c.Packets, Bytes: c.Bytes,
			})
		}
	})
	return list, err
}

// pinned reads one of the pinned tables; nil if there is none.
func (p *Plane) pinned(name table) (elements map[string]string, err error) {
	outer, err := ebpf.LoadPinnedMap(filepath.Join(p.dir, layout, string(name)), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	t := &kernelTable{name: name, outer: outer}
	if err := t.openInner(); err != nil || t.inner == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.inner.Close()) }()
	return t.read()
}

// Fills implements dataplane.Filler.
func (p *Plane) Fills(ctx context.Context) (list []kernel.Fill, err error) {
	for name := range grows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, err := openGrown(p.dir, name)
		if err != nil || g == nil {
			return nil, err
		}
		now := g.maps.Load().now
		limit, limitErr := roomLimit(now.KeySize(), now.ValueSize())
		n, err := g.count()
		if err := errors.Join(limitErr, err, g.close()); err != nil {
			return nil, err
		}
		short, _, _ := strings.Cut(name, "_")
		list = append(list, kernel.Fill{Map: short, Entries: int(n), Size: int(g.size()), Limit: int(max(limit, g.size()))})
	}
	return list, nil
}

// countReader reads the counters of ids, all of a chunk at once where the kernel
// can (BPF_MAP_LOOKUP_BATCH of per-CPU arrays, Linux 5.13).
type countReader struct {
	outer  *ebpf.Map
	cpus   int
	chunks map[uint32][]counters // what all processors have counted
}

func openCounts(dir string) (*countReader, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count processors: %w", err)
	}
	outer, err := ebpf.LoadPinnedMap(filepath.Join(dir, layout, "counts"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open map counts: %w", err)
	}
	return &countReader{outer, cpus, map[uint32][]counters{}}, nil
}

// read says what was counted under an id.
func (r *countReader) read(id uint32) (counters, error) {
	n := id / chunkSize
	if _, known := r.chunks[n]; !known {
		sums, err := r.readChunk(n)
		if err != nil {
			return counters{}, fmt.Errorf("read map of counters %d: %w", n, err)
		}
		r.chunks[n] = sums
	}
	return r.chunks[n][id%chunkSize], nil
}

func (r *countReader) readChunk(n uint32) (sums []counters, err error) {
	sums = make([]counters, chunkSize)
	var m *ebpf.Map
	err = r.outer.Lookup(n, &m)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return sums, nil // an id that was given just now
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	keys, each := make([]uint32, chunkSize), make([]counters, chunkSize*r.cpus)
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

func (c *counters) add(o counters) {
	c.Connections += o.Connections
	c.Packets += o.Packets
	c.Bytes += o.Bytes
	c.NotAllowed += o.NotAllowed
	c.NoBackend += o.NoBackend
}

func (r *countReader) close() error { return r.outer.Close() }
