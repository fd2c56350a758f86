package maps

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
)

// Resizable is a map that the programs fill: see GROWING in bpf/maps.h. When it is
// half full a larger one takes its place, into which the elements then move.
// Programs look into both meanwhile, so nothing is lost.
type Resizable struct {
	name     string
	outer    pins.Inner
	spec     *ebpf.MapSpec // of its maps
	limit    uint32        // of elements
	Busy     func(value []byte) bool
	OnGrowth func() error // called when there is room for more; may be nil

	Maps atomic.Pointer[Generations] // who reads a map that has gone keeps it open
	// moving is locked while the agent moves an element, or removes one for which
	// it isn't all the same whether somebody else did.
	moving sync.Mutex

	growth       sync.Mutex    // for what follows, and while the map is made larger
	counted      uint32        // elements, when they were counted last
	insertedThen uint64        // elements put in by then
	inserted     atomic.Uint64 // those that the agent has put in, ever
}

// Generations are the two that there may be, before being nil mostly.
type Generations struct{ Current, Previous *ebpf.Map }

// Of bpf/maps.h: enum generation.
const (
	current  = uint32(0)
	previous = uint32(1)
)

// open finds the maps, or makes one.
func (g *Resizable) open() error {
	at, err := g.generations()
	if err != nil {
		return err
	}
	if g.limit, err = maxEntries(g.spec.KeySize, g.spec.ValueSize); err != nil {
		return err
	}
	g.Maps.Store(&at)
	if at.Current != nil {
		return g.finishReplacing(at)
	}
	first, err := g.make(g.spec.MaxEntries)
	if err != nil {
		return err
	}
	return g.use(Generations{Current: first})
}

func (g *Resizable) make(size uint32) (*ebpf.Map, error) {
	spec := g.spec.Copy()
	spec.MaxEntries = size
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create map %s for %d entries: %w", g.name, size, err)
	}
	return m, nil
}

// Size is how many elements there is room for.
func (g *Resizable) Size() uint32 { return g.Maps.Load().Current.MaxEntries() }

// growIfNeeded makes the map larger if it is half full, as far as it may. put is how
// many elements programs ever put in: so long as those since the last time couldn't
// have filled half of it, nobody looks.
func (g *Resizable) growIfNeeded(put uint64) error {
	g.growth.Lock()
	defer g.growth.Unlock()
	put += g.inserted.Load()
	if g.Maps.Load().Previous != nil {
		if err := g.move(false); err != nil {
			return err
		}
	}
	half := uint64(g.Size() / 2)
	if uint64(g.counted)+put-g.insertedThen < half || g.Size() >= g.limit {
		return nil
	}
	n, err := g.Count()
	if err != nil {
		return err
	}
	g.counted, g.insertedThen = n, put
	if uint64(n) < half {
		return nil
	}
	return g.grow()
}

// Insert adds an element, and makes the map larger for it if it is full, as far as it
// may. ebpf.ErrKeyExist says that there is one.
func (g *Resizable) Insert(key, value any) error {
	for {
		size := g.Size()
		err := g.Update(key, value, ebpf.UpdateNoExist)
		if err == nil {
			g.inserted.Add(1)
		}
		if !errors.Is(err, unix.E2BIG) || size >= g.limit {
			return err
		}
		if err := g.enlarge(size); err != nil {
			return err
		}
	}
}

// Count counts the elements.
func (g *Resizable) Count() (n uint32, err error) {
	return n, g.Each(func(_, _ []byte) { n++ })
}

// Each visits all elements; those that move meanwhile maybe twice, and then as they
// are last.
func (g *Resizable) Each(visit func(key, value []byte)) error {
	at := g.Maps.Load()
	if at.Previous != nil {
		if err := eachOf(at.Previous, visit); err != nil {
			return fmt.Errorf("read map before %s: %w", g.name, err)
		}
	}
	if err := eachOf(at.Current, visit); err != nil {
		return fmt.Errorf("read map %s: %w", g.name, err)
	}
	return nil
}

// Lookup finds an element, as the programs do.
func (g *Resizable) Lookup(key, value any) error {
	at := g.Maps.Load()
	err := at.Current.Lookup(key, value)
	if at.Previous != nil && errors.Is(err, ebpf.ErrKeyNotExist) {
		err = at.Previous.Lookup(key, value)
	}
	return err
}

// Update changes an element where it is (ebpf.UpdateExist), or adds one.
func (g *Resizable) Update(key, value any, how ebpf.MapUpdateFlags) error {
	at := g.Maps.Load()
	if at.Previous == nil {
		return at.Current.Update(key, value, how)
	}
	g.moving.Lock()
	defer g.moving.Unlock()
	if how == ebpf.UpdateExist {
		err := at.Current.Update(key, value, how)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = at.Previous.Update(key, value, how)
		}
		return err
	}
	if value, err := at.Previous.LookupBytes(key); err != nil || value != nil {
		return errors.Join(err, ebpf.ErrKeyExist)
	}
	return at.Current.Update(key, value, how)
}

// Remove deletes an element; ebpf.ErrKeyNotExist says that there is none.
func (g *Resizable) Remove(key any) error {
	at := g.Maps.Load()
	before := ebpf.ErrKeyNotExist
	if at.Previous != nil {
		if before = at.Previous.Delete(key); before != nil && !errors.Is(before, ebpf.ErrKeyNotExist) {
			return before
		}
	}
	err := at.Current.Delete(key)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return before
	}
	return err
}

func (g *Resizable) Close() error {
	at := g.Maps.Load()
	if at == nil {
		return nil
	}
	var errs []error
	for _, m := range []*ebpf.Map{at.Current, at.Previous} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
