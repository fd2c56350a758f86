// Package maps has the eBPF maps of a node: it opens, reads, writes and enlarges them.
//
// store.go holds all of them. table.go and batch.go are the maps of the table, which
// only the agent writes; resizable.go and grow.go the maps that the programs fill;
// chunked.go, counts.go and counters.go the counters of backends and frontends;
// digest.go tells whether somebody else changed the table.
package maps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/bpffs"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Store are the maps of a node.
type Store struct {
	Dir       string // the node's
	Maps      map[string]*ebpf.Map
	Tables    map[program.TableName]*Table
	Resizable map[string]*Resizable
	counts    *Chunked
	States    *Chunked
	full      map[string]uint64 // how often maps that programs fill were full
	leftOut   program.Contents  // what the tables should hold and have no room for
	digests   digests           // of what was written to Tables
}

// Open opens the pinned maps that the objects need, and makes those that
// aren't there.
func Open(dir string, specs ...*ebpf.CollectionSpec) (*Store, error) {
	if err := bpffs.Mount(); err != nil {
		return nil, err
	}
	layout := filepath.Join(dir, pins.Layout)
	if err := pins.MakeDir(layout); err != nil {
		return nil, fmt.Errorf("open maps: %w", err)
	}
	s := &Store{Dir: dir, Maps: map[string]*ebpf.Map{}, Tables: map[program.TableName]*Table{}, leftOut: program.Contents{}}
	for _, spec := range specs {
		for name, m := range spec.Maps {
			if s.Maps[name] != nil || strings.HasPrefix(name, ".") || name == scratch {
				continue
			}
			opened, err := openPinned(m, layout)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("open map %s: %w", name, err), s.Close())
			}
			s.Maps[name] = opened
		}
	}
	if err := s.openTables(specs[0].Maps); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	all := map[string]*ebpf.MapSpec{}
	for _, spec := range specs {
		maps.Copy(all, spec.Maps)
	}
	if err := s.openResizable(all); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// scratch is a map that holds nothing from one packet to the next: each load of
// the programs has its own.
const scratch = "works"

// openPinned opens a pinned map or makes it. One that doesn't fit, because
// another version made it, is made anew; programs of that version go on with
// theirs until they are replaced.
func openPinned(spec *ebpf.MapSpec, dir string) (*ebpf.Map, error) {
	spec = spec.Copy()
	spec.Pinning = ebpf.PinByName
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if !errors.Is(err, ebpf.ErrMapIncompatible) {
		return m, err
	}
	if err := os.Remove(filepath.Join(dir, spec.Name)); err != nil {
		return nil, err
	}
	return ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
}

// Inner is what the elements of a map of maps are made from. It says nothing of
// their types: the kernel would have to read those for each one.
func Inner(of *ebpf.MapSpec) *ebpf.MapSpec {
	spec := of.InnerMap.Copy()
	spec.Key, spec.Value = nil, nil
	return spec
}

func (s *Store) openTables(specs map[string]*ebpf.MapSpec) error {
	s.counts, s.States = s.chunked(specs, "counts"), s.chunked(specs, "states")
	for _, c := range []*Chunked{s.counts, s.States} {
		if err := c.outer.Sweep(); err != nil {
			return err
		}
	}
	for _, name := range program.TableNames {
		t := &Table{name: name}
		s.Tables[name] = t
		if name == program.Prefixes {
			t.inner = s.Maps[string(name)]
			continue
		}
		in := pins.InnerOf(s.Maps[string(name)], s.Dir, string(name))
		t.outer, t.spec = &in, Inner(specs[string(name)])
		if err := t.openInner(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) chunked(specs map[string]*ebpf.MapSpec, name string) *Chunked {
	return &Chunked{pins.InnerOf(s.Maps[name], s.Dir, name), Inner(specs[name]), map[uint32]*chunk{}}
}

// Read reads the tables back.
func (s *Store) Read() (program.Contents, error) {
	out := program.NewContents()
	for _, t := range program.TableNames {
		var err error
		if out[t], err = s.Tables[t].read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) Close() error {
	var errs []error
	for _, t := range s.Tables { // nobody may be opening one just now
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	for _, m := range s.Maps {
		errs = append(errs, m.Close())
	}
	for _, g := range s.Resizable {
		errs = append(errs, g.Close())
	}
	for _, t := range s.Tables {
		if t.outer != nil && t.inner != nil {
			errs = append(errs, t.inner.Close())
		}
	}
	if s.counts != nil {
		errs = append(errs, s.counts.close(), s.States.close())
	}
	return errors.Join(errs...)
}

// ForSpec are those of the maps that an object has.
func (s *Store) ForSpec(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m := s.Maps[name]; m != nil {
			out[name] = m
		}
	}
	return out
}

// LoadPrograms has the kernel take an object's programs, with these maps.
func (s *Store) LoadPrograms(spec *ebpf.CollectionSpec) (*ebpf.Collection, error) {
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: s.ForSpec(spec)})
	if err != nil {
		return nil, explainLoad(err)
	}
	return c, nil
}

// explainLoad says more clearly what kernels mean that don't take a program.
func explainLoad(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EINVAL):
		return &kernel.MissingError{What: "what ebpf mode needs of eBPF", Since: "5.10", Err: err}
	case errors.As(err, &verifier):
		return &kernel.MissingError{What: "what ebpf mode needs of eBPF", Since: "5.10", Err: fmt.Errorf("load programs: %w", verifier)}
	}
	return fmt.Errorf("load programs: %w", err)
}
