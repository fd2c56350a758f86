package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairway-net/fairway/internal/kernel"
)

// generations are the maps that there are.
func (g *Resizable) generations() (at Generations, err error) {
	for n, m := range map[uint32]**ebpf.Map{current: &at.Current, previous: &at.Previous} {
		if *m, err = g.outer.Open(n); err != nil {
			return at, fmt.Errorf("open map %s: %w", g.name, err)
		}
	}
	return at, nil
}

// finishReplacing ends what an agent has begun that was killed as it replaced the map.
func (g *Resizable) finishReplacing(at Generations) error {
	if at.Previous == nil {
		return nil
	}
	same, err := sameMap(at.Current, at.Previous)
	if err != nil || !same {
		return err
	}
	return g.dropPrevious()
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

// use makes these the maps.
func (g *Resizable) use(next Generations) error {
	if next.Previous != nil {
		if err := g.outer.Put(previous, next.Previous); err != nil {
			return fmt.Errorf("replace map %s: %w", g.name, err)
		}
	}
	if err := g.outer.Put(current, next.Current); err != nil {
		return fmt.Errorf("replace map %s: %w", g.name, err)
	}
	g.Maps.Store(&next)
	return nil
}

// dropPrevious gives the map before up, when no program is still looking for what was
// in it.
func (g *Resizable) dropPrevious() error {
	kernel.Quiesce()
	if err := g.outer.Delete(previous); err != nil {
		return fmt.Errorf("give up map before %s: %w", g.name, err)
	}
	g.Maps.Store(&Generations{Current: g.Maps.Load().Current})
	return nil
}

// enlarge makes the map larger than it was, unless it is by now.
func (g *Resizable) enlarge(was uint32) error {
	g.growth.Lock()
	defer g.growth.Unlock()
	if g.Size() > was {
		return nil
	}
	return g.grow()
}

// grow puts a map of twice the size in the place of the one that there is, and
// begins to move the elements.
func (g *Resizable) grow() error {
	if g.Maps.Load().Previous != nil {
		if err := g.move(true); err != nil {
			return err
		}
	}
	larger, err := g.make(2 * g.Size())
	if err != nil {
		return err
	}
	if err := g.use(Generations{Current: larger, Previous: g.Maps.Load().Current}); err != nil {
		return errors.Join(err, larger.Close())
	}
	if g.OnGrowth != nil {
		if err := g.OnGrowth(); err != nil {
			return err
		}
	}
	return g.move(false)
}

// move moves what the map before holds, all but what had better stay a little
// longer, unless it's all that matters. When nothing is left the map is given up.
func (g *Resizable) move(all bool) error {
	at := g.Maps.Load()
	left := 0
	var failed error
	err := eachOf(at.Previous, func(key, value []byte) {
		if failed != nil {
			return
		}
		if !all && g.Busy != nil && g.Busy(value) {
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
	return g.dropPrevious()
}

// moveOne moves an element. From the moment on when it is in its new place
// programs change it there; what they did to it just before is taken after it.
// Programs delete an element from the map before, and then from the present one
// (erase in bpf/maps.h). So one that has gone from the map before meanwhile is
// deleted from the present one, too.
func (g *Resizable) moveOne(at *Generations, key []byte) error {
	g.moving.Lock()
	defer g.moving.Unlock()
	value, err := at.Previous.LookupBytes(key)
	if err != nil || value == nil {
		return err
	}
	err = at.Current.Update(key, value, ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) { // it has been put anew
		return deleteFrom(at.Previous, key)
	}
	if err != nil {
		return err
	}
	late, err := at.Previous.LookupBytes(key)
	if err != nil {
		return err
	}
	if late == nil {
		return deleteFrom(at.Current, key)
	}
	if string(late) != string(value) {
		if err := at.Current.Update(key, late, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return deleteFrom(at.Previous, key)
}

func deleteFrom(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}
