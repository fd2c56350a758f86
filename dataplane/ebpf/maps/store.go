// Package maps has the eBPF maps of a node: it opens, reads, writes and enlarges them.
//
// store.go holds all of them. table.go and batch.go are the maps of the table, which
// only the agent writes; resizable.go and grow.go the maps that the programs fill;
// chunked.go, counts.go and counters.go the counters of backends and frontends.
package maps

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
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
}

// Open opens the pinned maps that the objects need, and makes those that
// aren't there.
func Open(dir string, specs ...*ebpf.CollectionSpec) (*Store, error) {
	if err := pins.MountBPFFS(); err != nil {
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
	s.counts = &Chunked{s.Maps["counts"], Inner(specs["counts"]), map[uint32]*chunk{}}
	s.States = &Chunked{s.Maps["states"], Inner(specs["states"]), map[uint32]*chunk{}}
	for _, name := range program.TableNames {
		t := &Table{name: name}
		s.Tables[name] = t
		if name == program.Prefixes {
			t.inner = s.Maps[string(name)]
			continue
		}
		t.outer, t.spec = s.Maps[string(name)], Inner(specs[string(name)])
		if err := t.openInner(); err != nil {
			return err
		}
	}
	return nil
}

// apply does what a plan says. Elements for which there is no room are left
// out and said in the error, until they are deleted or others make room for them.
func (s *Store) apply(p *program.Plan) error {
	for _, t := range program.TableNames {
		if err := s.putAll(t, p.Put[t]); err != nil {
			return err
		}
	}
	for _, t := range slices.Backward(program.TableNames) {
		for _, e := range p.Delete[t] {
			delete(s.leftOut[t], e.Key)
			if err := s.Tables[t].Remove(e.Key); err != nil {
				return err
			}
		}
		var again []program.Entry
		for key, value := range s.leftOut[t] {
			if len(again) == len(p.Delete[t]) {
				break
			}
			again = append(again, program.Entry{Table: t, Key: key, Value: value})
		}
		if err := s.putAll(t, again); err != nil {
			return err
		}
	}
	return s.leftOutError()
}

// putAll puts elements of a table, and keeps in mind those that are left out.
func (s *Store) putAll(t program.TableName, list []program.Entry) error {
	leftOut, err := s.Tables[t].putAll(list)
	if err != nil {
		return err
	}
	if len(s.leftOut[t]) > 0 {
		for _, e := range list {
			delete(s.leftOut[t], e.Key)
		}
	}
	for _, e := range leftOut {
		if s.leftOut[t] == nil {
			s.leftOut[t] = map[string]string{}
		}
		s.leftOut[t][e.Key] = e.Value
	}
	return nil
}

func (s *Store) leftOutError() error {
	n, where := 0, []string(nil)
	for _, t := range program.TableNames {
		if some := len(s.leftOut[t]); some > 0 {
			n, where = n+some, append(where, string(t))
		}
	}
	if n == 0 {
		return nil
	}
	return &kernel.FullError{What: "eBPF map " + strings.Join(where, ", "), LeftOut: n}
}

// reserve makes room for entries, and for what ids count, which it sets to 0. The
// kernel makes each change of a map of maps wait, so they are made together.
func (s *Store) reserve(target program.Entries, ids []program.Allocated) error {
	var group errgroup.Group
	for _, name := range program.TableNames {
		if n := len(target[name]); n > 0 {
			group.Go(func() error { return s.Tables[name].reserve(n + n/2) })
		}
	}
	for _, c := range []*Chunked{s.counts, s.States} {
		group.Go(func() error { return c.prepare(ids) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, g := range ids {
		if err := errors.Join(s.counts.Clear(g), s.States.Clear(g)); err != nil {
			return err
		}
	}
	return nil
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

// Write does what a plan says, with room for what tables are to hold in the end,
// if that's known.
func (s *Store) Write(plan *program.Plan, target program.Entries, st *program.State) error {
	if err := s.reserve(target, st.Allocated); err != nil {
		return err
	}
	st.Allocated = nil
	return s.apply(plan)
}

// Compare reads the tables, adopts their ids, and writes what is missing or
// wrong. The error of a full map comes with the state.
func (s *Store) Compare(want *model.Table, scheduler string) (*program.State, error) {
	have, err := s.Read()
	if err != nil {
		return nil, err
	}
	s.leftOut = program.Contents{}
	next, target, noID := program.Adopt(have, want, scheduler)
	noRoom := s.Write(program.Difference(have, target), target, next)
	if noRoom != nil && !kernel.IsFull(noRoom) {
		return nil, noRoom
	}
	if err := s.SetRanges(want.Settings.Reserved); err != nil {
		return nil, err
	}
	return next, errors.Join(noID, noRoom)
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
