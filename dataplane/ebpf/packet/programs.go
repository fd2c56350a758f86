package packet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// programPins is where the programs of a build are pinned.
func (p *Path) programPins(dir string) string { return filepath.Join(dir, "programs", p.build) }

// need makes programs ready: takes the pinned ones of this build, or loads and
// pins them.
func (p *Path) need(names ...string) error {
	var missing []string
	for _, name := range names {
		if p.programs[name] != nil {
			continue
		}
		program, err := ebpf.LoadPinnedProgram(filepath.Join(p.programPins(p.store.Dir), name), nil)
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return fmt.Errorf("open program %s: %w", name, err)
		default:
			p.keep(name, program)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return p.loadAnew(missing)
}

func (p *Path) keep(name string, program *ebpf.Program) {
	if p.programs == nil {
		p.programs = map[string]*ebpf.Program{}
	}
	p.programs[name] = program
}

func (p *Path) loadAnew(names []string) error {
	spec := p.spec.Copy()
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !slices.Contains(names, name) })
	collection, err := p.store.LoadPrograms(spec)
	if err != nil {
		return err
	}
	defer collection.Close()
	if err := errors.Join(p.makePins(), p.Steps.At("old programs forgotten")); err != nil {
		return err
	}
	for _, name := range names {
		program := collection.DetachProgram(name)
		p.keep(name, program)
		if err := program.Pin(filepath.Join(p.programPins(p.store.Dir), name)); err != nil {
			return fmt.Errorf("pin program %s: %w", name, err)
		}
	}
	return nil
}

// makePins makes the directory for this build's programs, in the place of all
// others.
func (p *Path) makePins() error {
	pins := p.programPins(p.store.Dir)
	if _, err := os.Stat(pins); err == nil {
		return nil
	}
	if err := os.RemoveAll(filepath.Dir(pins)); err != nil {
		return fmt.Errorf("remove pinned programs: %w", err)
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return fmt.Errorf("pin programs: %w", err)
	}
	return nil
}

func closePrograms(programs map[string]*ebpf.Program) error {
	var errs []error
	for _, program := range programs {
		errs = append(errs, program.Close())
	}
	return errors.Join(errs...)
}
