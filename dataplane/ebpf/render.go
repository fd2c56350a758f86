package ebpf

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Render says what the plane would put into the kernel for a table: see
// dataplane.Kind.
func Render(t *model.Table, options kernel.Options) ([]kernel.Object, error) {
	all, err := newState(options.Scheduler).build(t)
	if err != nil {
		return nil, err
	}
	c := newContents()
	for _, entries := range all {
		c.add(entries)
	}
	list := describe(c)
	for hook := range hooks {
		list = append(list, programObject(hook))
	}
	list = append(list, packetObjects()...)
	kernel.SortObjects(list)
	return list, nil
}

// Script says the same as lines for people: no usual tool takes them as input.
func Script(t *model.Table, options kernel.Options) (map[string]string, error) {
	list, err := Render(t, options)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, o := range list {
		fmt.Fprintln(&b, o)
	}
	return map[string]string{"ebpf.txt": b.String()}, nil
}

// Objects implements dataplane.Plane.
func (p *Plane) Objects(ctx context.Context) ([]kernel.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.opening.Lock()
	defer p.opening.Unlock()
	var programs []kernel.Object
	for _, path := range p.paths {
		list, err := path.objects(p.dir)
		if err != nil {
			return nil, err
		}
		programs = append(programs, list...)
	}
	if p.store == nil && len(programs) == 0 {
		return nil, nil
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	c, err := p.store.read()
	if err != nil {
		return nil, err
	}
	list := append(programs, describe(c)...)
	kernel.SortObjects(list)
	return list, nil
}

// describe gives what tables hold in words. Ids and slots are this node's own
// affair and differ from one run to the next: pools go by their names.
func describe(c contents) []kernel.Object {
	known := map[uint32]*poolObject{}
	for key, value := range c[names] {
		k := unpacker(key)
		n := k.u32()
		known[n] = &poolObject{name: strings.TrimRight(value, "\x00")}
	}
	pool := func(n uint32) *poolObject {
		if known[n] == nil {
			known[n] = &poolObject{name: fmt.Sprintf("without a name %d", n)}
		}
		return known[n]
	}
	for key, value := range c[pools] {
		k := unpacker(key)
		pool(k.u32()).settings(unpacker(value))
	}
	for key, value := range c[members] {
		k := unpacker(key)
		pool(k.u32()).member(k, unpacker(value))
	}
	for key, value := range c[slots] {
		k := unpacker(key)
		pool(k.u32()).slot(k.u32(), unpacker(value))
	}
	for key, value := range c[maglevs] {
		k := unpacker(key)
		pool(k.u32()).maglev = value
	}
	var list []kernel.Object
	for _, p := range known {
		list = append(list, p.object())
	}
	return append(list, describeFrontends(c, pool)...)
}

func describeFrontends(c contents, pool func(uint32) *poolObject) []kernel.Object {
	var list []kernel.Object
	owner := map[uint32]model.Key{}
	for key, value := range c[frontends] {
		k, v := unpacker(key), unpacker(value)
		front := k.key()
		id, flags := v.u32(), v.u32()
		owner[id] = front
		var lines []string
		if flags&flagRestricted != 0 {
			lines = append(lines, "restricted")
		}
		for o := range model.Origin(model.NumOrigins) {
			line := fmt.Sprintf("%s -> %s", o, pool(v.u32()).name)
			switch flags := v.u32(); {
			case flags&flagDirect != 0:
				line += " direct"
			case flags&flagMasquerade != 0:
				line += " masqueraded"
			}
			lines = append(lines, line)
		}
		list = append(list, kernel.Object{Kind: "frontend", Name: front.String(), Text: strings.Join(lines, "\n")})
	}
	for key := range c[prefixes] {
		k := unpacker(key)
		bits, scope, addr := k.u32(), k.u32(), k.addr()
		list = append(list, kernel.Object{Kind: "prefix", Name: scopeName(scope, owner) + " " + readPrefix(bits, addr).String()})
	}
	return list
}

func scopeName(scope uint32, owner map[uint32]model.Key) string {
	switch scope {
	case scopePods:
		return "pods"
	case scopeReserved:
		return "reserved"
	case scopeExempt:
		return "exempt"
	case scopeKnown4:
		return "pods known in IPv4"
	case scopeKnown6:
		return "pods known in IPv6"
	case scopeOfNode:
		return "node"
	}
	if front, known := owner[scope]; known {
		return "into " + front.String()
	}
	return fmt.Sprintf("scope %d", scope)
}

func readPrefix(bits uint32, addr netip.Addr) netip.Prefix {
	n := int(bits) - 32
	if addr.Is4() {
		n -= 96
	}
	return netip.PrefixFrom(addr, n)
}
