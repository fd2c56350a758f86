package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// growing is a map that the programs fill: see GROWING in bpf/maps.h. When it is
// half full a larger one takes its place, into which the elements then move.
// Programs look into both meanwhile, so nothing is lost.
type growing struct {
	name  string
	outer *ebpf.Map
	spec  *ebpf.MapSpec // of its maps
	limit uint32        // of elements
	stays func(value []byte) bool

	maps atomic.Pointer[generations] // who reads a map that has gone keeps it open
	// moving is locked while the agent moves an element, or removes one for which
	// it isn't all the same whether somebody else did.
	moving sync.Mutex

	room  sync.Mutex    // for what follows, and while the map is made larger
	held  uint32        // elements, when they were counted last
	noted uint64        // elements put in by then
	added atomic.Uint64 // those that the agent has put in, ever
}

// generations are the two that there may be, before being nil mostly.
type generations struct{ now, before *ebpf.Map }

// Of bpf/maps.h: enum generation.
const (
	generationNow    = uint32(0)
	generationBefore = uint32(1)
)

// open finds the maps, or makes one.
func (g *growing) open(pins string) error {
	at, err := g.generations()
	if err != nil {
		return err
	}
	if g.limit, err = roomLimit(g.spec.KeySize, g.spec.ValueSize); err != nil {
		return err
	}
	g.maps.Store(&at)
	if at.now != nil {
		return g.mend(at)
	}
	first, err := g.first(pins)
	if err != nil {
		return err
	}
	return g.use(generations{now: first})
}

// generations are the maps that there are.
func (g *growing) generations() (at generations, err error) {
	for n, m := range map[uint32]**ebpf.Map{generationNow: &at.now, generationBefore: &at.before} {
		if err := g.outer.Lookup(n, m); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return at, fmt.Errorf("open map %s: %w", g.name, err)
		}
	}
	return at, nil
}

// mend ends what an agent has begun that was killed as it replaced the map.
func (g *growing) mend(at generations) error {
	if at.before == nil {
		return nil
	}
	same, err := sameMap(at.now, at.before)
	if err != nil || !same {
		return err
	}
	return g.forgetBefore()
}

func sameMap(a, b *ebpf.Map) (bool, error) {
	var ids [2]ebpf.MapID
	for i, m := range []*ebpf.Map{a, b} {
		info, err := m.Info()
		if err != nil {
			return false, fmt.Errorf("identify map: %w", err)
		}
		ids[i], _ = info.ID()
	}
	return ids[0] == ids[1], nil
}

// first is the first map: an earlier version's, or a new one.
func (g *growing) first(pins string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, earlier[g.name]), nil)
	if errors.Is(err, os.ErrNotExist) {
		return g.make(g.spec.MaxEntries)
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", earlier[g.name], err)
	}
	fits := m.Type() == g.spec.Type && m.KeySize() == g.spec.KeySize && m.ValueSize() == g.spec.ValueSize && m.Flags() == g.spec.Flags
	if !fits {
		return nil, errors.Join(fmt.Errorf("map %s has another layout than its name says", earlier[g.name]), m.Close())
	}
	return m, nil
}

func (g *growing) make(size uint32) (*ebpf.Map, error) {
	spec := g.spec.Copy()
	spec.MaxEntries = size
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create map %s for %d entries: %w", g.name, size, err)
	}
	return m, nil
}

// use makes these the maps.
func (g *growing) use(next generations) error {
	if next.before != nil {
		if err := g.outer.Put(generationBefore, next.before); err != nil {
			return fmt.Errorf("replace map %s: %w", g.name, err)
		}
	}
	if err := g.outer.Put(generationNow, next.now); err != nil {
		return fmt.Errorf("replace map %s: %w", g.name, err)
	}
	g.maps.Store(&next)
	return nil
}

// forgetBefore gives the map before up, when no program is still looking for what was
// in it.
func (g *growing) forgetBefore() error {
	kernel.Quiesce()
	if err := g.outer.Delete(generationBefore); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("give up map before %s: %w", g.name, err)
	}
	g.maps.Store(&generations{now: g.maps.Load().now})
	return nil
}

// size is how many elements there is room for.
func (g *growing) size() uint32 { return g.maps.Load().now.MaxEntries() }

// keepRoom makes the map larger if it is half full, as far as it may. put is how
// many elements programs ever put in: so long as those since the last time couldn't
// have filled half of it, nobody looks.
func (g *growing) keepRoom(put uint64) error {
	g.room.Lock()
	defer g.room.Unlock()
	put += g.added.Load()
	if g.maps.Load().before != nil {
		if err := g.move(false); err != nil {
			return err
		}
	}
	half := uint64(g.size() / 2)
	if uint64(g.held)+put-g.noted < half || g.size() >= g.limit {
		return nil
	}
	n, err := g.count()
	if err != nil {
		return err
	}
	g.held, g.noted = n, put
	if uint64(n) < half {
		return nil
	}
	return g.grow()
}

// add adds an element, and makes the map larger for it if it is full, as far as it
// may. ebpf.ErrKeyExist says that there is one.
func (g *growing) add(key, value any) error {
	for {
		size := g.size()
		err := g.update(key, value, ebpf.UpdateNoExist)
		if err == nil {
			g.added.Add(1)
		}
		if !errors.Is(err, unix.E2BIG) || size >= g.limit {
			return err
		}
		if err := g.enlarge(size); err != nil {
			return err
		}
	}
}

// enlarge makes the map larger than it was, unless it is by now.
func (g *growing) enlarge(was uint32) error {
	g.room.Lock()
	defer g.room.Unlock()
	if g.size() > was {
		return nil
	}
	return g.grow()
}

// grow puts a map of twice the size in the place of the one that there is, and
// begins to move the elements.
func (g *growing) grow() error {
	if g.maps.Load().before != nil {
		if err := g.move(true); err != nil {
			return err
		}
	}
	larger, err := g.make(2 * g.size())
	if err != nil {
		return err
	}
	if err := g.use(generations{now: larger, before: g.maps.Load().now}); err != nil {
		return errors.Join(err, larger.Close())
	}
	return g.move(false)
}

// move moves what the map before holds, all but what had better stay a little
// longer, unless it's all that matters. When nothing is left the map is given up.
func (g *growing) move(all bool) error {
	at := g.maps.Load()
	left := 0
	var failed error
	err := eachOf(at.before, func(key, value []byte) {
		if failed != nil {
			return
		}
		if !all && g.stays != nil && g.stays(value) {
			left++
			return
		}
		failed = g.moveOne(at, key)
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("move what map %s holds: %w", g.name, err)
	}
	if left > 0 {
		return nil
	}
	return g.forgetBefore()
}

// moveOne moves an element. From the moment on when it is in its new place
// programs change it there; what they did to it just before is taken after it.
func (g *growing) moveOne(at *generations, key []byte) error {
	g.moving.Lock()
	defer g.moving.Unlock()
	value, err := at.before.LookupBytes(key)
	if err != nil || value == nil {
		return err
	}
	err = at.now.Update(key, value, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) { // it has been put anew
		return deleteFrom(at.before, key)
	}
	if err != nil {
		return err
	}
	late, err := at.before.LookupBytes(key)
	if err != nil {
		return err
	}
	if late != nil && string(late) != string(value) {
		if err := at.now.Update(key, late, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return deleteFrom(at.before, key)
}

func deleteFrom(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// count counts the elements.
func (g *growing) count() (n uint32, err error) {
	return n, g.each(func(_, _ []byte) { n++ })
}

// each visits all elements; those that move meanwhile maybe twice, and then as they
// are last.
func (g *growing) each(visit func(key, value []byte)) error {
	at := g.maps.Load()
	if at.before != nil {
		if err := eachOf(at.before, visit); err != nil {
			return fmt.Errorf("read map before %s: %w", g.name, err)
		}
	}
	if err := eachOf(at.now, visit); err != nil {
		return fmt.Errorf("read map %s: %w", g.name, err)
	}
	return nil
}

// lookup finds an element, as the programs do.
func (g *growing) lookup(key, value any) error {
	at := g.maps.Load()
	err := at.now.Lookup(key, value)
	if at.before != nil && errors.Is(err, ebpf.ErrKeyNotExist) {
		err = at.before.Lookup(key, value)
	}
	return err
}

// update changes an element where it is (ebpf.UpdateExist), or adds one.
func (g *growing) update(key, value any, how ebpf.MapUpdateFlags) error {
	at := g.maps.Load()
	if at.before == nil {
		return at.now.Update(key, value, how)
	}
	g.moving.Lock()
	defer g.moving.Unlock()
	if how == ebpf.UpdateExist {
		err := at.now.Update(key, value, how)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			err = at.before.Update(key, value, how)
		}
		return err
	}
	if value, err := at.before.LookupBytes(key); err != nil || value != nil {
		return errors.Join(err, ebpf.ErrKeyExist)
	}
	return at.now.Update(key, value, how)
}

// remove deletes an element; ebpf.ErrKeyNotExist says that there is none.
func (g *growing) remove(key any) error {
	at := g.maps.Load()
	err := at.now.Delete(key)
	if at.before == nil || err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	before := at.before.Delete(key)
	if err == nil && errors.Is(before, ebpf.ErrKeyNotExist) {
		return nil
	}
	return before
}

func (g *growing) close() error {
	at := g.maps.Load()
	if at == nil {
		return nil
	}
	var errs []error
	for _, m := range []*ebpf.Map{at.now, at.before} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
