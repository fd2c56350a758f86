package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
)

// Chunked is a map of maps, of which each holds counters or state for
// chunkSize ids.
type Chunked struct {
	outer pins.Inner
	spec  *ebpf.MapSpec // of a chunk
	known map[uint32]*chunk
}

type chunk struct {
	m   *ebpf.Map
	new bool // made by this process: all zero at first
}

// prepare finds the chunks of ids, or makes them, all together.
func (c *Chunked) prepare(ids []program.Allocated) error {
	var numbers []uint32
	var fds []uint32
	for _, g := range ids {
		n := g.ID / program.ChunkSize
		if c.known[n] != nil {
			continue
		}
		k := &chunk{}
		var err error
		if k.m, err = c.outer.Open(n); err != nil {
			return fmt.Errorf("open map of counters %d: %w", n, err)
		}
		if k.m == nil {
			if k.m, err = c.make(); err != nil {
				return err
			}
			k.new = true
			numbers, fds = append(numbers, n), append(fds, uint32(k.m.FD()))
		}
		c.known[n] = k
	}
	if err := c.put(numbers, fds); err != nil {
		for _, n := range numbers {
			err = errors.Join(err, c.known[n].m.Close())
			delete(c.known, n)
		}
		return fmt.Errorf("add maps of counters: %w", err)
	}
	return nil
}

// make makes a chunk, and pins it.
func (c *Chunked) make() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(c.spec)
	if err != nil {
		return nil, fmt.Errorf("create map of counters: %w", err)
	}
	if err := c.outer.Pin(m); err != nil {
		return nil, errors.Join(fmt.Errorf("pin map of counters: %w", err), m.Close())
	}
	return m, nil
}

// putters is how many chunks are put at the same time. With every change of a map
// of maps the kernel waits until no program uses what was there before
// (synchronize_rcu), some ten milliseconds: puts at the same time wait
// together. From Linux 6.8 on it waits once for all elements of a batch, too.
const putters = 16

func (c *Chunked) put(numbers, fds []uint32) error {
	each := (len(numbers) + putters - 1) / putters
	var group errgroup.Group
	for len(numbers) > 0 {
		n := min(each, len(numbers))
		some, of := numbers[:n], fds[:n]
		numbers, fds = numbers[n:], fds[n:]
		group.Go(func() error { return c.putSome(some, of) })
	}
	return group.Wait()
}

func (c *Chunked) putSome(numbers, fds []uint32) error {
	_, err := c.outer.Outer.BatchUpdate(numbers, fds, nil)
	if !errors.Is(err, ebpf.ErrNotSupported) { // it is since Linux 5.19
		return err
	}
	for i, n := range numbers {
		if err := c.outer.Outer.Put(n, fds[i]); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what is there for an id, if it isn't of each processor.
func (c *Chunked) Read(id uint32, value any) error {
	k := c.known[id/program.ChunkSize]
	if k == nil {
		m, err := c.outer.Open(id / program.ChunkSize)
		if err == nil && m == nil {
			err = ebpf.ErrKeyNotExist
		}
		if err != nil {
			return fmt.Errorf("open map of state %d: %w", id/program.ChunkSize, err)
		}
		k = &chunk{m: m}
		c.known[id/program.ChunkSize] = k
	}
	if err := k.m.Lookup(id%program.ChunkSize, value); err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	return nil
}

// Clear sets what counts under an id to 0. There must be a chunk for it.
func (c *Chunked) Clear(g program.Allocated) error {
	k := c.known[g.ID/program.ChunkSize]
	if k.new && !g.Reused {
		return nil
	}
	var zero any = make([]byte, c.spec.ValueSize)
	if c.spec.Type == ebpf.PerCPUArray {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return fmt.Errorf("count processors: %w", err)
		}
		each := make([][]byte, cpus)
		for i := range each {
			each[i] = make([]byte, c.spec.ValueSize)
		}
		zero = each
	}
	if err := k.m.Put(g.ID%program.ChunkSize, zero); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

func (c *Chunked) close() error {
	var errs []error
	for _, k := range c.known {
		errs = append(errs, k.m.Close())
	}
	c.known = map[uint32]*chunk{}
	return errors.Join(errs...)
}
