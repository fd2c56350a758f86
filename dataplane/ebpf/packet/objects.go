package packet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Objects lists the programs that run, as packetObjects those that should.
func (p *Path) Objects(dir string) ([]kernel.Object, error) {
	a, err := p.newAttacher(dir)
	if err != nil {
		return nil, err
	}
	return p.objectsAt(a, dir)
}

func (p *Path) objectsAt(a attacher, dir string) ([]kernel.Object, error) {
	live, err := kernel.List(p.netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var without []string
	some := false
	kinds := kindsOf(live)
	for _, l := range live {
		sides := slices.Sorted(maps.Keys(sidePrograms[kinds[l.Attrs().Index]]))
		if len(sides) == 0 {
			continue
		}
		there, err := a.attached(l, sides)
		if err != nil {
			return nil, err
		}
		if some = some || there; !there {
			without = append(without, l.Attrs().Name)
		}
	}
	if !some {
		return nil, nil
	}
	list := PacketObjects()
	if len(without) > 0 {
		list[0].Text += ", but not at " + strings.Join(without, " ")
	}
	before, err := allAhead(a, dir, live)
	if len(before) > 0 {
		list[0].Text += ", behind programs of others: " + strings.Join(before, ", ")
	}
	return list, err
}

func PacketObjects() []kernel.Object {
	return []kernel.Object{{Kind: "program", Name: "interfaces", Text: "attached"}}
}
