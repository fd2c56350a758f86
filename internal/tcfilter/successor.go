package tcfilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// LoadSuccessor loads what takes the place of a program of an earlier version: with its
// maps, where they still fit. The earlier one may be nil, and stays the caller's.
func (f First) LoadSuccessor(spec *ebpf.CollectionSpec, earlier *ebpf.Program) (*ebpf.Collection, error) {
	before := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range before {
			_ = m.Close() // the collection has its own
		}
	}()
	if earlier != nil {
		var err error
		if before, err = f.mapsOf(earlier); err != nil {
			return nil, err
		}
	}
	copied := map[string]*ebpf.Map{}
	for name, m := range before {
		s := spec.Maps[name]
		if s != nil && s.Compatible(m) == nil {
			continue
		}
		delete(before, name)
		if s == nil || s.KeySize != m.KeySize() || s.ValueSize != m.ValueSize() {
			_ = m.Close()
			continue
		}
		copied[name] = m // of another type or size: what it has is taken over
		defer m.Close()
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: before})
	if err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	for name, m := range copied {
		if err := copyMap(c.Maps[name], m); err != nil {
			c.Close()
			return nil, fmt.Errorf("take over map %s: %w", name, err)
		}
	}
	return c, nil
}

// copyMap copies the entries of a map of another type. What goes meanwhile is gone.
func copyMap(to, from *ebpf.Map) error {
	key, value := make([]byte, from.KeySize()), make([]byte, from.ValueSize())
	all := from.Iterate()
	for all.Next(&key, &value) {
		if err := to.Put(key, value); err != nil {
			return err
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	return nil
}

// mapsOf opens the maps of a program, by name. The caller closes them, also those that come
// with an error.
func (f First) mapsOf(program *ebpf.Program) (map[string]*ebpf.Map, error) {
	info, err := program.Info()
	if err != nil {
		return nil, fmt.Errorf("read the program there is: %w", err)
	}
	p, err := f.pins()
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	found, err := p.maps(id)
	if err != nil || len(found) > 0 {
		return found, err
	}
	ids, _ := info.MapIDs() // an earlier version's, without pins
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return found, fmt.Errorf("open a map of the program there is: %w", err)
		}
		at, err := m.Info()
		if err != nil {
			return found, errors.Join(fmt.Errorf("read a map of the program there is: %w", err), m.Close())
		}
		found[at.Name] = m
	}
	return found, nil
}
