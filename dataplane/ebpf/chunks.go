package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// chunked is a map of maps, of which each holds counters or state for
// chunkSize ids.
type chunked struct {
	outer *ebpf.Map
	spec  *ebpf.MapSpec // of a chunk
	known map[uint32]*chunk
}

type chunk struct {
	m   *ebpf.Map
	new bool // made by this process: all zero at first
}

// chunk finds the chunk of an id, or makes it.
func (c *chunked) chunk(id uint32) (*chunk, error) {
	n := id / chunkSize
	if k := c.known[n]; k != nil {
		return k, nil
	}
	k := &chunk{}
	err := c.outer.Lookup(n, &k.m)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		if k.m, err = ebpf.NewMap(c.spec); err != nil {
			return nil, fmt.Errorf("create map of counters: %w", err)
		}
		k.new = true
		err = c.outer.Put(n, k.m)
	}
	if err != nil {
		return nil, fmt.Errorf("open map of counters %d: %w", n, err)
	}
	c.known[n] = k
	return k, nil
}

// clear makes room for what counts under an id, and sets it to 0.
func (c *chunked) clear(g given) error {
	k, err := c.chunk(g.id)
	if err != nil || k.new && !g.again {
		return err
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
	if err := k.m.Put(g.id%chunkSize, zero); err != nil {
		return fmt.Errorf("clear counters: %w", err)
	}
	return nil
}

func (c *chunked) close() error {
	var errs []error
	for _, k := range c.known {
		errs = append(errs, k.m.Close())
	}
	c.known = map[uint32]*chunk{}
	return errors.Join(errs...)
}
