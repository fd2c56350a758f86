package nftables

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/nlmsg"
)

// equal reports whether the kernel's rule is this one: the same expressions,
// and in each every attribute that was sent. The kernel adds some, leaves out
// zeros, and has its own numbers for sets and counters.
func (r *rule) equal(found foundRule) bool {
	if len(r.exprs) != len(found.exprs) {
		return false
	}
	for i, e := range r.exprs {
		if !sameExpression(e, found.exprs[i]) {
			return false
		}
	}
	return true
}

func sameExpression(want nlmsg.Builder, found []byte) bool {
	name, wantData := splitExpression(want)
	foundName, foundData := splitExpression(found)
	if name != foundName {
		return false
	}
	var ignore []uint16
	switch name {
	case "counter":
		return true
	case "lookup":
		ignore = []uint16{unix.NFTA_LOOKUP_SET_ID}
	case "dynset":
		ignore = []uint16{unix.NFTA_DYNSET_SET_ID, unix.NFTA_DYNSET_EXPR} // counters: the set says that it has them
	case "nat":
		ignore = []uint16{unix.NFTA_NAT_FLAGS} // the kernel adds what follows from the registers
	}
	return sameAttributes(wantData, foundData, ignore...)
}

func splitExpression(data []byte) (name string, attrs []byte) {
	for typ, value := range nlmsg.Attributes(data).All() {
		switch typ {
		case unix.NFTA_EXPR_NAME:
			name = value.Text()
		case unix.NFTA_EXPR_DATA:
			attrs = value
		}
	}
	return name, attrs
}

func sameAttributes(want, found []byte, ignore ...uint16) bool {
	have := map[uint16]nlmsg.Attributes{}
	for typ, value := range nlmsg.Attributes(found).All() {
		have[typ] = value
	}
	for typ, value := range nlmsg.Attributes(want).All() {
		got, ok := have[typ]
		switch {
		case slices.Contains(ignore, typ):
		case !ok && len(bytes.Trim(value, "\x00")) == 0:
		case !ok:
			return false
		case !bytes.Equal(value, got) && !sameNested(value, got):
			return false
		}
	}
	return true
}

// sameNested compares values whose only difference may be the flag that says
// they are nested, which not all kernels set.
func sameNested(want, found []byte) bool {
	if len(want) != len(found) || len(want) < unix.SizeofNlAttr {
		return false
	}
	n := 0
	for range nlmsg.Attributes(want).All() {
		n++
	}
	return n > 0 && sameAttributes(want, found) && sameAttributes(found, want)
}

// equalRules reports whether the chain holds exactly these rules.
func (c *foundChain) equalRules(want *chain) bool {
	if len(c.rules) != len(want.rules) {
		return false
	}
	for i := range want.rules {
		if !want.rules[i].equal(c.rules[i]) {
			return false
		}
	}
	return true
}
