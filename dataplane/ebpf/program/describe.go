package program

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Describe gives what tables hold in words. Ids and slots are this node's own
// affair and differ from one run to the next: pools go by their names.
func Describe(c Contents) []kernel.Object {
	known := map[uint32]*poolObject{}
	for key, value := range c[Names] {
		k := Unpacker(key)
		n := k.U32()
		known[n] = &poolObject{name: strings.TrimRight(value, "\x00")}
	}
	pool := func(n uint32) *poolObject {
		if known[n] == nil {
			known[n] = &poolObject{name: fmt.Sprintf("without a name %d", n)}
		}
		return known[n]
	}
	for key, value := range c[pools] {
		k := Unpacker(key)
		pool(k.U32()).settings(Unpacker(value))
	}
	for key, value := range c[Members] {
		k := Unpacker(key)
		pool(k.U32()).member(k, Unpacker(value))
	}
	for key, value := range c[Slots] {
		k := Unpacker(key)
		pool(k.U32()).slot(k.U32(), Unpacker(value))
	}
	for key, value := range c[maglevs] {
		k := Unpacker(key)
		pool(k.U32()).piece(k.U32(), value)
	}
	var list []kernel.Object
	for _, p := range known {
		list = append(list, p.object())
	}
	return append(list, describeFrontends(c, pool)...)
}

func describeFrontends(c Contents, pool func(uint32) *poolObject) []kernel.Object {
	var list []kernel.Object
	owner := map[uint32]model.Key{}
	for key, value := range c[Frontends] {
		k, v := Unpacker(key), Unpacker(value)
		front := k.Key()
		id, flags := v.U32(), v.U32()
		owner[id] = front
		var lines []string
		if flags&flagRestricted != 0 {
			lines = append(lines, "restricted")
		}
		for o := range model.Origin(model.NumOrigins) {
			line := fmt.Sprintf("%s -> %s", o, pool(v.U32()).name)
			switch flags := v.U32(); {
			case flags&flagStable != 0:
				line += " direct, stable"
			case flags&flagDirect != 0:
				line += " direct"
			case flags&flagMasquerade != 0:
				line += " masqueraded"
			}
			lines = append(lines, line)
		}
		list = append(list, kernel.Object{Kind: "frontend", Name: front.String(), Text: strings.Join(lines, "\n")})
	}
	for key := range c[Prefixes] {
		k := Unpacker(key)
		bits, scope, addr := k.U32(), k.U32(), k.addr()
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
