package program

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// poolObject is a pool as the tables say it.
type poolObject struct {
	name      string
	set       bool // the pool itself is there
	backends  uint32
	slots     uint32
	affinity  uint32
	scheduler uint16
	drop      bool
	stride    uint32            // of Maglev hashing: the number of places
	maglev    map[uint32]string // the table's pieces
	seconds   map[uint32]string // and those of the second choices
	all       map[uint32]netip.AddrPort
	found     map[netip.AddrPort]*backendObject
	places    map[uint32]netip.AddrPort
}

func (p *poolObject) piece(number uint32, places string) {
	if p.maglev == nil {
		p.maglev, p.seconds = map[uint32]string{}, map[uint32]string{}
	}
	if number >= moreSlots {
		p.seconds[number-moreSlots] = places
	} else {
		p.maglev[number] = places
	}
}

// backendObject is a backend of it.
type backendObject struct {
	ids    map[uint32]bool // one, if all is well
	flags  uint32
	weight uint16
	slots  int
	member bool
}

func (p *poolObject) settings(v Unpacker) {
	p.set = true
	p.backends, p.slots = v.U32(), v.U32()
	p.stride = v.U32()
	p.affinity, p.scheduler, p.drop = v.U32(), v.u16(), v.u16()&flagDrop != 0
}

func (p *poolObject) backend(to netip.AddrPort) *backendObject {
	if p.found == nil {
		p.found = map[netip.AddrPort]*backendObject{}
	}
	if p.found[to] == nil {
		p.found[to] = &backendObject{ids: map[uint32]bool{}}
	}
	return p.found[to]
}

func (p *poolObject) member(k, v Unpacker) {
	b := p.backend(k.Endpoint())
	b.ids[v.U32()] = true
	b.flags, b.member = v.U32(), true
}

func (p *poolObject) slot(index uint32, v Unpacker) {
	if p.places == nil {
		p.places, p.all = map[uint32]netip.AddrPort{}, map[uint32]netip.AddrPort{}
	}
	to := v.Endpoint()
	if index >= allSlots {
		p.all[index-allSlots] = to
		return
	}
	p.places[index] = to
	b := p.backend(to)
	b.weight = v.u16()
	b.ids[v.U32()] = true
	b.slots++
}

func (p *poolObject) object() kernel.Object {
	var lines []string
	if !p.set {
		lines = append(lines, "missing")
	}
	scheduler := "unknown scheduler"
	for name, n := range schedulers {
		if n == p.scheduler {
			scheduler = string(name)
		}
	}
	lines = append(lines, fmt.Sprintf("%s among %d in %d slots", scheduler, p.backends, p.slots))
	if p.drop {
		lines = append(lines, "drops while empty")
	}
	if p.affinity != 0 {
		lines = append(lines, fmt.Sprintf("remembers clients for %d s", p.affinity))
	}
	lines = append(lines, p.wrongSlots()...)
	for _, to := range slices.SortedFunc(maps.Keys(p.found), netip.AddrPort.Compare) {
		lines = append(lines, p.found[to].line(to))
	}
	return kernel.Object{Kind: "pool", Name: p.name, Text: strings.Join(append(lines, p.maglevLines()...), "\n")}
}

// wrongSlots lists places that are missing, or there although they shouldn't.
func (p *poolObject) wrongSlots() []string {
	var lines []string
	for i := range p.slots {
		if i >= p.backends {
			i = i - p.backends + moreSlots
		}
		if !p.places[i].IsValid() {
			lines = append(lines, fmt.Sprintf("slot %d is missing", i))
		}
	}
	if extra := len(p.places) - int(p.slots); extra > 0 {
		lines = append(lines, fmt.Sprintf("%d superfluous slots", extra))
	}
	return lines
}

func (b *backendObject) line(to netip.AddrPort) string {
	line := to.String()
	if b.flags&flagLocal != 0 {
		line += " local"
	}
	switch {
	case !b.member:
		line += " not a member"
	case b.flags&flagActive == 0:
		line += " draining"
	}
	if b.slots > 0 {
		line += fmt.Sprintf(" weight %d, slots %d", b.weight, b.slots)
	}
	if len(b.ids) > 1 {
		line += ", several ids"
	}
	return line
}

// maglevLines say how many of the tables' places each backend has.
func (p *poolObject) maglevLines() []string {
	return slices.Concat(p.countPlaces("hashed %d times to %s", p.maglev, p.places), p.countPlaces("hashed %d times to %s as second choice", p.seconds, p.all))
}

func (p *poolObject) countPlaces(line string, pieces map[uint32]string, slots map[uint32]netip.AddrPort) []string {
	count := map[netip.AddrPort]int{}
	for n, piece := range pieces {
		v := Unpacker(piece)
		for place := n * maglevPiece; place < min((n+1)*maglevPiece, p.stride); place++ {
			if slot := v.u16(); slot != model.NoSecond {
				count[slots[uint32(slot)]]++
			}
		}
	}
	var lines []string
	for _, to := range slices.SortedFunc(maps.Keys(count), netip.AddrPort.Compare) {
		lines = append(lines, fmt.Sprintf(line, count[to], to))
	}
	return lines
}
