package ebpf

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// poolObject is a pool as the tables say it.
type poolObject struct {
	name     string
	set      bool // the pool itself is there
	backends uint32
	slots    uint32
	affinity uint32
	way      uint16
	drop     bool
	maglev   string
	found    map[netip.AddrPort]*backendObject
	places   map[uint32]netip.AddrPort
}

// backendObject is a backend of it.
type backendObject struct {
	ids    map[uint32]bool // one, if all is well
	flags  uint32
	weight uint16
	slots  int
	member bool
}

func (p *poolObject) settings(v unpacker) {
	p.set = true
	p.backends, p.slots = v.u32(), v.u32()
	v.u32() // follows from slots
	p.affinity, p.way, p.drop = v.u32(), v.u16(), v.u16()&flagDrop != 0
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

func (p *poolObject) member(k, v unpacker) {
	b := p.backend(k.endpoint())
	b.ids[v.u32()] = true
	b.flags, b.member = v.u32(), true
}

func (p *poolObject) slot(index uint32, v unpacker) {
	if p.places == nil {
		p.places = map[uint32]netip.AddrPort{}
	}
	to := v.endpoint()
	p.places[index] = to
	b := p.backend(to)
	b.weight = v.u16()
	b.ids[v.u32()] = true
	b.slots++
}

func (p *poolObject) object() kernel.Object {
	var lines []string
	if !p.set {
		lines = append(lines, "missing")
	}
	way := "unknown scheduler"
	for name, n := range schedulers {
		if n == p.way {
			way = string(name)
		}
	}
	lines = append(lines, fmt.Sprintf("%s among %d in %d slots", way, p.backends, p.slots))
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

// maglevLines say how many of the table's places each backend has.
func (p *poolObject) maglevLines() []string {
	if p.maglev == "" {
		return nil
	}
	count := map[netip.AddrPort]int{}
	for v := unpacker(p.maglev); len(v) > 0; {
		count[p.places[uint32(v.u16())]]++
	}
	var lines []string
	for _, to := range slices.SortedFunc(maps.Keys(count), netip.AddrPort.Compare) {
		lines = append(lines, fmt.Sprintf("hashed %d times to %s", count[to], to))
	}
	return lines
}
