package tcfilter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/bpffs"
	"github.com/fairway-net/fairway/internal/netns"
)

// pins is the directory of a program at an interface, by which another process finds it
// again: to open a program or a map by its number takes CAP_SYS_ADMIN. It has the link by
// tcx, and a directory for each program by its number, with its maps. The program in force
// is the one that the link, or the filter, says.
//
//	/sys/fs/bpf/fairway-announce/NETNS/PROGRAM-INTERFACE/link
//	                                                     NUMBER/program
//	                                                     NUMBER/map-NAME
type pins string

// pinned is not below ebpf mode's directory, which goes when that mode does.
var pinned = filepath.Join(bpffs.Dir, "fairway-announce")

const (
	linkPin    = "link"
	programPin = "program"
	mapPrefix  = "map-"
)

func (f First) pins() (pins, error) {
	cookie, err := netns.Cookie()
	if err != nil {
		return "", err
	}
	return pins(filepath.Join(pinned, strconv.FormatUint(cookie, 10), fmt.Sprintf("%s-%d", f.Program, f.Index))), nil
}

func (p pins) of(id ebpf.ProgramID) string {
	return filepath.Join(string(p), strconv.FormatUint(uint64(id), 10))
}

// link opens the link, and says at which interface it is: 0 if that is gone. It is nil if
// there is none.
func (p pins) link() (l link.Link, index int, program ebpf.ProgramID, err error) {
	l, err = link.LoadPinnedLink(filepath.Join(string(p), linkPin), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, 0, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("open the link there is: %w", err)
	}
	info, err := l.Info()
	if err != nil {
		return nil, 0, 0, errors.Join(fmt.Errorf("read the link there is: %w", err), l.Close())
	}
	if tcx := info.TCX(); tcx != nil {
		index = int(tcx.Ifindex)
	}
	return l, index, info.Program, nil
}

// linked is the program that is at an interface by the link; 0 if there is none.
func (p pins) linked(index int) (ebpf.ProgramID, error) {
	l, at, id, err := p.link()
	if err != nil || l == nil {
		return 0, err
	}
	if at != index {
		id = 0 // another interface had the number
	}
	return id, l.Close()
}

// program opens a pinned program, or one that an earlier version left without pins.
func (p pins) program(id ebpf.ProgramID) (*ebpf.Program, error) {
	found, err := ebpf.LoadPinnedProgram(filepath.Join(p.of(id), programPin), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return openByID(id)
	}
	if err != nil {
		return nil, fmt.Errorf("open the program there is: %w", err)
	}
	return found, nil
}

// IsPinned reports whether a program is pinned for any interface of any node.
func IsPinned(id ebpf.ProgramID) (bool, error) {
	there, err := filepath.Glob(pins(filepath.Join(pinned, "*", "*")).of(id))
	if err != nil {
		return false, fmt.Errorf("look for program %d: %w", id, err)
	}
	return len(there) > 0, nil
}

// pin pins a program with its maps.
func (p pins) pin(program *ebpf.Program, maps map[string]*ebpf.Map) (ebpf.ProgramID, error) {
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("read the program: %w", err)
	}
	id, _ := info.ID()
	if err := bpffs.Mount(); err != nil {
		return 0, err
	}
	if err := RemoveDead(); err != nil {
		return 0, err
	}
	dir := p.of(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("pin the program: %w", err)
	}
	// Copies, since one that was pinned isn't pinned again when its pin has gone.
	for name, m := range maps {
		if strings.HasPrefix(name, ".") {
			continue // constants, which no successor takes over
		}
		again, err := m.Clone()
		if err == nil {
			err = errors.Join(ignoreExists(again.Pin(filepath.Join(dir, mapPrefix+name))), again.Close())
		}
		if err != nil {
			return 0, fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	again, err := program.Clone()
	if err == nil {
		err = errors.Join(ignoreExists(again.Pin(filepath.Join(dir, programPin))), again.Close())
	}
	if err != nil {
		return 0, fmt.Errorf("pin the program: %w", err)
	}
	return id, nil
}

func ignoreExists(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// maps opens the maps of a pinned program, by name; none if it isn't pinned. The caller
// closes them, also those that come with an error.
func (p pins) maps(id ebpf.ProgramID) (map[string]*ebpf.Map, error) {
	found := map[string]*ebpf.Map{}
	files, err := filepath.Glob(filepath.Join(p.of(id), mapPrefix+"*"))
	if err != nil {
		return found, err
	}
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Base(file), mapPrefix)
		m, err := ebpf.LoadPinnedMap(file, nil)
		if err != nil {
			return found, fmt.Errorf("open map %s of the program there is: %w", name, err)
		}
		found[name] = m
	}
	return found, nil
}

// attach puts a program at an interface by tcx, before all others or in the place of the
// one there.
func (p pins) attach(index int, program *ebpf.Program) error {
	l, at, _, err := p.link()
	if err != nil {
		return err
	}
	if l != nil && at == index {
		return errors.Join(l.Update(program), l.Close())
	}
	if l != nil {
		if err := errors.Join(os.Remove(filepath.Join(string(p), linkPin)), l.Close()); err != nil {
			return fmt.Errorf("remove the link of an interface that is gone: %w", err)
		}
	}
	l, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	if err != nil {
		return err
	}
	return errors.Join(l.Pin(filepath.Join(string(p), linkPin)), l.Close())
}

// detach ends the link, if it is at the interface, and removes all pins.
func (p pins) detach(index int) (there bool, err error) {
	l, at, _, err := p.link()
	if err != nil {
		return false, err
	}
	if err := p.remove(); err != nil {
		return false, err
	}
	if l == nil {
		return false, nil
	}
	return at == index, l.Close() // the last that held it
}

// remove removes all pins, and the network namespace's directory with the last.
func (p pins) remove() error {
	if err := os.RemoveAll(string(p)); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	for _, dir := range []string{filepath.Dir(string(p)), pinned} {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue // on a read-only /sys, removing it would fail all the same
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("remove pins: %w", err)
		}
	}
	return nil
}

// keepOnly removes the pins of programs that are no more in force.
func (p pins) keepOnly(id ebpf.ProgramID) error {
	entries, err := os.ReadDir(string(p))
	if err != nil {
		return fmt.Errorf("list pins: %w", err)
	}
	for _, e := range entries {
		if dir := filepath.Join(string(p), e.Name()); e.IsDir() && dir != p.of(id) {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove pins: %w", err)
			}
		}
	}
	return nil
}

// RemoveDead removes pins of interfaces that are gone, also with their network namespace.
func RemoveDead() error {
	links, err := filepath.Glob(filepath.Join(pinned, "*", "*", linkPin))
	if err != nil {
		return err
	}
	for _, file := range links {
		p := pins(filepath.Dir(file))
		l, at, _, err := p.link()
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		if at == 0 {
			err = p.remove()
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
	}
	return nil
}
