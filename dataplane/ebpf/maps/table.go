package maps

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Table is one of the tables in the kernel.
type Table struct {
	name  program.TableName
	outer *pins.Inner   // nil for the trie, which is never replaced
	inner *ebpf.Map     // nil until something is to be in it
	mu    sync.Mutex    // held to change inner, or close it, and by others than Apply
	spec  *ebpf.MapSpec // of inner
}

// Put adds or changes an element. A map that is full gives way to a larger one.
func (t *Table) Put(key, value string) error {
	if err := t.reserve(1); err != nil {
		return err
	}
	err := t.inner.Put([]byte(key), []byte(value))
	if t.outer != nil && errors.Is(err, unix.E2BIG) {
		if err = t.grow(2 * t.inner.MaxEntries()); err == nil {
			err = t.inner.Put([]byte(key), []byte(value))
		}
	}
	if errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) {
		return &kernel.FullError{What: "the eBPF map " + string(t.name), LeftOut: 1}
	}
	if err != nil {
		return fmt.Errorf("write element of map %s: %w", t.name, err)
	}
	return nil
}

// Remove deletes an element; one that isn't there is no error.
func (t *Table) Remove(key string) error {
	if t.inner == nil {
		return nil
	}
	if err := t.inner.Delete([]byte(key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete element of map %s: %w", t.name, err)
	}
	return nil
}

// read lists all elements.
func (t *Table) read() (map[string]string, error) {
	out := map[string]string{}
	err := t.each(func(key, value []byte) { out[string(key)] = string(value) })
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", t.name, err)
	}
	return out, nil
}

// each visits all elements: of hash maps many at a time, of the trie one by one.
// What visit is given is only lent.
func (t *Table) each(visit func(key, value []byte)) error {
	if t.inner == nil {
		return nil
	}
	if t.outer != nil {
		return eachOf(t.inner, visit)
	}
	var key, value []byte
	all := t.inner.Iterate()
	for all.Next(&key, &value) {
		visit(key, value)
	}
	return all.Err()
}

// eachOf visits all elements of a hash map (BPF_MAP_LOOKUP_BATCH, Linux 5.6).
func eachOf(m *ebpf.Map, visit func(key, value []byte)) error {
	const atOnce = 4096
	keys, values := arrays(atOnce, m.KeySize()), arrays(atOnce, m.ValueSize())
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			visit(keys.Index(i).Bytes(), values.Index(i).Bytes())
		}
		if err != nil {
			return nil // that was all
		}
	}
}

// grow puts a larger map in the place of the table's one. Programs see either.
func (t *Table) grow(size uint32) error {
	elements, err := t.read()
	if err != nil {
		return err
	}
	larger, err := t.newInner(size)
	if err != nil {
		return err
	}
	for key, value := range elements {
		if err := larger.Put([]byte(key), []byte(value)); err != nil {
			return errors.Join(fmt.Errorf("write element of larger map %s: %w", t.name, err), larger.Close())
		}
	}
	old := t.inner
	if err := t.use(larger); err != nil {
		return errors.Join(err, larger.Close())
	}
	return old.Close()
}

// newInner makes a map for the table with room for n elements.
func (t *Table) newInner(n uint32) (*ebpf.Map, error) {
	spec := t.spec.Copy()
	spec.MaxEntries = max(spec.MaxEntries, 1<<bits.Len32(n-1))
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create map %s for %d entries: %w", t.name, n, err)
	}
	return m, nil
}

// use makes m the table's map. The kernel waits then until no program uses
// another one (synchronize_rcu), some ten milliseconds.
func (t *Table) use(m *ebpf.Map) error {
	if err := t.outer.Put(0, m); err != nil {
		return fmt.Errorf("replace map %s: %w", t.name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inner = m
	return nil
}

// openInner finds the table's map, if there is one.
func (t *Table) openInner() error {
	m, err := t.outer.Open(0)
	if err != nil {
		return fmt.Errorf("open map %s: %w", t.name, err)
	}
	t.inner = m
	return nil
}

// reserve makes room for n elements.
func (t *Table) reserve(n int) error {
	switch {
	case t.outer == nil || t.inner != nil && n <= int(t.inner.MaxEntries()):
		return nil
	case t.inner != nil:
		return t.grow(uint32(n))
	}
	m, err := t.newInner(uint32(n))
	if err != nil {
		return err
	}
	if err := t.use(m); err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}

// ReadShared is read for whoever has the table while others change it.
func (t *Table) ReadShared() (elements map[string]string, err error) {
	elements = map[string]string{}
	return elements, t.eachShared(func(key, value []byte) { elements[string(key)] = string(value) })
}

// clone opens the table's map once more; nil if there is none yet.
func (t *Table) clone() (*ebpf.Map, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inner == nil {
		return nil, nil
	}
	return t.inner.Clone()
}

// readPinned reads one of the pinned tables; nil if there is none.
func readPinned(dir string, name program.TableName) (elements map[string]string, err error) {
	outer, err := ebpf.LoadPinnedMap(filepath.Join(dir, pins.Layout, string(name)), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, outer.Close()) }()
	in := pins.InnerOf(outer, dir, string(name))
	t := &Table{name: name, outer: &in}
	if err := t.openInner(); err != nil || t.inner == nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.inner.Close()) }()
	return t.read()
}
