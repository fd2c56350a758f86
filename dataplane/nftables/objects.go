package nftables

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// elementObjects are elements as people read them. Numbers of pools and slots
// are this node's own affair and differ from one run to the next: pools are
// objects by their names, with what all their elements together say.
func elementObjects(elements []element) []kernel.Object {
	found := map[uint32]*poolObject{}
	pool := func(n uint32) *poolObject {
		if found[n] == nil {
			found[n] = &poolObject{number: n, slots: map[uint32]string{}, shares: map[netip.AddrPort]int{}}
		}
		return found[n]
	}
	var list []kernel.Object
	var members []element
	for _, e := range elements {
		switch e.set {
		case pools:
			p := pool(fromNative(e.key))
			p.name, p.choose = e.comment, chosen(fromNative(e.data)).String()
		case fresh:
			pool(fromNative(e.key)).fresh = chosen(fromNative(e.data)).String()
		case learn:
			pool(fromNative(e.key)).learn = fmt.Sprintf("%ds", fromNative(e.data)&maxPool)
		case v4.slots, v6.slots:
			p, backend := pool(fromNative(e.key[:4])), readAddrPort(e.data)
			p.slots[fromNative(e.key[4:])] = backend.String()
			p.shares[backend]++
		case v4.members, v6.members:
			members = append(members, e)
		default:
			continue
		}
	}
	owner := map[uint32]*poolObject{}
	for _, p := range found {
		if p.fresh != "" {
			for backend := range p.shares {
				owner[memberNumber(p.number, backend)] = p
			}
		}
	}
	for _, e := range members {
		backend := readAddrPort(e.data)
		if p := owner[fromNative(e.key)]; p != nil && memberNumber(p.number, backend) == fromNative(e.key) {
			p.members = append(p.members, backend)
		} else {
			list = append(list, kernel.Object{Kind: "element", Name: e.set.name + " " + format(e.set.key, e.key), Text: backend.String()})
		}
	}
	for _, p := range found {
		list = append(list, p.object())
	}
	return append(list, plainObjects(elements, found)...)
}

// poolObject is a pool as its elements say.
type poolObject struct {
	number               uint32
	name                 string
	choose, fresh, learn string
	slots                map[uint32]string
	shares               map[netip.AddrPort]int
	members              []netip.AddrPort
}

func (p *poolObject) title() string {
	if p.name == "" {
		return "without a name " + formatClass(native(p.number))
	}
	return p.name
}

func (p *poolObject) object() kernel.Object {
	lines := []string{p.choose}
	if p.fresh != "" || p.learn != "" {
		lines = append(lines, "unknown client: "+p.fresh, "remember: "+p.learn)
	}
	for i := range uint32(len(p.slots)) {
		if p.slots[i] == "" {
			lines = append(lines, fmt.Sprintf("slot %d is missing", i))
		}
	}
	for _, backend := range slices.SortedFunc(maps.Keys(p.shares), netip.AddrPort.Compare) {
		line := backend.String()
		if n := p.shares[backend]; n != 1 {
			line += fmt.Sprintf(" in %d slots", n)
		}
		if p.fresh != "" && !slices.Contains(p.members, backend) {
			line += " never remembered"
		}
		lines = append(lines, line)
	}
	return kernel.Object{Kind: "pool", Name: p.title(), Text: strings.Join(lines, "\n")}
}

// plainObjects are the elements that don't belong to a pool.
func plainObjects(elements []element, found map[uint32]*poolObject) []kernel.Object {
	isRoute := map[*set]bool{}
	for _, own := range []*familySets{v4, v6} {
		for _, s := range own.from {
			isRoute[s] = true
		}
	}
	var list, intervals []element
	var out []kernel.Object
	for _, e := range elements {
		switch {
		case e.set == v4.pods || e.set == v6.pods || e.set == v4.reserved || e.set == v6.reserved || e.set == podInterfaces:
			intervals = append(intervals, e)
		case isRoute[e.set]:
			n := fromNative(e.data)
			text := "no pool " + formatClass(e.data)
			if p := found[n&maxPool]; p != nil {
				text = p.title()
			}
			if n&masqueradeFlag != 0 {
				text += ", masqueraded"
			}
			if n&restrictedFlag != 0 {
				text += ", from some sources"
			}
			out = append(out, object(&e, format(e.set.key, e.key), text))
		case e.set == v4.allowed || e.set == v6.allowed:
			last := e.set.key[3]
			n := len(e.key) - last.size
			out = append(out, object(&e, format(e.set.key[:3], e.key[:n])+" . "+last.format(e.key[n:])+"-"+last.format(e.keyEnd[n:]), ""))
		case e.set.isVerdictMap():
			out = append(out, object(&e, format(e.set.key, e.key), e.verdict.String()))
		case e.set == v4.connections || e.set == v6.connections:
			out = append(out, object(&e, format(e.set.key, e.key), format(e.set.value, e.data)))
		case e.set == v4.exempt || e.set == v6.exempt, e.set == v4.backends || e.set == v6.backends:
			list = append(list, e)
		}
	}
	for _, e := range list {
		out = append(out, object(&e, format(e.set.key, e.key), ""))
	}
	return append(out, intervalObjects(intervals)...)
}

func object(e *element, name, text string) kernel.Object {
	if e.comment != "" {
		text = strings.TrimLeft(fmt.Sprintf("%s comment %q", text, e.comment), " ")
	}
	return kernel.Object{Kind: "element", Name: e.set.name + " " + name, Text: text}
}

// intervalObjects puts the beginnings and ends of intervals together.
func intervalObjects(elements []element) []kernel.Object {
	slices.SortFunc(elements, func(a, b element) int {
		if c := cmp.Or(strings.Compare(a.set.name, b.set.name), strings.Compare(a.key, b.key)); c != 0 || a.end == b.end {
			return c
		}
		if a.end { // one ends where the next begins
			return -1
		}
		return 1
	})
	var out []kernel.Object
	for i := range elements {
		e := &elements[i]
		if e.end {
			continue
		}
		name := format(e.set.key, e.key)
		if i+1 < len(elements) && elements[i+1].end && elements[i+1].set == e.set {
			name += " up to but not " + format(e.set.key, elements[i+1].key)
		}
		out = append(out, object(e, name, ""))
	}
	return out
}
