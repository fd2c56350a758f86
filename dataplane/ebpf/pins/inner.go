package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Inner are the maps that a map of maps holds. The kernel tells their ids, but to open a
// map by its id takes CAP_SYS_ADMIN, which an agent in a pod doesn't have. So each is
// pinned, too: in a directory of its outer map, with its id as name.
type Inner struct {
	Outer *ebpf.Map
	dir   string
}

// InnerOf are the maps in an outer one, which has this name at the node with this
// directory. Without directory nothing is pinned, and nothing outlives the process.
func InnerOf(outer *ebpf.Map, node, name string) Inner {
	if node == "" {
		return Inner{Outer: outer}
	}
	return Inner{Outer: outer, dir: filepath.Join(node, Layout, "inner", name)}
}

func (i Inner) pin(id uint32) string { return filepath.Join(i.dir, strconv.FormatUint(uint64(id), 10)) }

// Open opens the map at a place; nil if there is none. One that an earlier version
// left, without pin, and that can't be opened for that, counts as none.
func (i Inner) Open(place uint32) (*ebpf.Map, error) {
	id, err := i.id(place)
	for err == nil && id != 0 {
		m, openErr := ebpf.LoadPinnedMap(i.pin(id), nil)
		if !errors.Is(openErr, fs.ErrNotExist) {
			return m, openErr
		}
		before := id
		if id, err = i.id(place); err == nil && id == before {
			return i.openByID(id)
		}
	}
	return nil, err
}

// openByID opens a map that isn't pinned, and pins it.
func (i Inner) openByID(id uint32) (*ebpf.Map, error) {
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if errors.Is(err, unix.EPERM) {
		slog.Warn("an eBPF map of an earlier version is replaced, since opening it takes CAP_SYS_ADMIN; its entries are lost", "id", id)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := i.Pin(m); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// id is that of the map at a place; 0 if there is none.
func (i Inner) id(place uint32) (id uint32, err error) {
	if err := i.Outer.Lookup(place, &id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, err
	}
	return id, nil
}

// Pin makes sure that a map can be opened again; before it is put, lest it be found
// nowhere when this process is killed.
func (i Inner) Pin(m *ebpf.Map) error {
	if i.dir == "" {
		return nil
	}
	info, err := m.Info()
	if err != nil {
		return fmt.Errorf("identify map: %w", err)
	}
	id, _ := info.ID()
	if _, err := os.Lstat(i.pin(uint32(id))); err == nil {
		return nil
	}
	if err := MakeDir(i.dir); err != nil {
		return fmt.Errorf("pin map: %w", err)
	}
	pinned, err := m.Clone() // which has one path, while a map may be in two places
	if err != nil {
		return err
	}
	return errors.Join(pinned.Pin(i.pin(uint32(id))), pinned.Close())
}

// Put puts a map at a place.
func (i Inner) Put(place uint32, m *ebpf.Map) error {
	if err := i.Pin(m); err != nil {
		return err
	}
	if err := i.Outer.Put(place, m); err != nil {
		return err
	}
	return i.Sweep()
}

// Delete empties a place.
func (i Inner) Delete(place uint32) error {
	if err := i.Outer.Delete(place); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return i.Sweep()
}

// Sweep removes the pins of maps that aren't in the outer one any more.
func (i Inner) Sweep() error {
	if i.dir == "" {
		return nil
	}
	pinned, err := os.ReadDir(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pinned maps: %w", err)
	}
	held := map[string]bool{}
	for place := range i.Outer.MaxEntries() {
		id, err := i.id(place)
		if err != nil {
			return err
		}
		held[filepath.Base(i.pin(id))] = true
	}
	for _, pin := range pinned {
		if held[pin.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(i.dir, pin.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove pinned map: %w", err)
		}
	}
	return nil
}
