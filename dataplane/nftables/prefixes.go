package nftables

import (
	"net/netip"
	"slices"
	"strings"
)

// outermost are those of the prefixes of one family that are not inside
// another one, sorted: the kernel refuses overlapping intervals.
func outermost(prefixes []netip.Prefix, ipv6 bool) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is6() == ipv6 {
			list = append(list, p.Masked())
		}
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var outer []netip.Prefix
	for _, p := range list {
		if n := len(outer); n == 0 || !outer[n-1].Contains(p.Addr()) {
			outer = append(outer, p)
		}
	}
	return outer
}

// lastAddr is the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// interval is an interval of an ordered set: its first key, and the first one
// behind it unless it reaches to the end.
func interval(s *set, first, last, comment string) []element {
	list := []element{{set: s, key: first, comment: comment}}
	if end, ok := next(last); ok {
		list = append(list, element{set: s, key: end, end: true})
	}
	return list
}

// next is the key that follows; there is none after the last.
func next(key string) (string, bool) {
	b := []byte(key)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]++
		if b[i] != 0 {
			return string(b), true
		}
	}
	return "", false
}

func prefixIntervals(s *set, prefixes []netip.Prefix, ipv6 bool) []element {
	var list []element
	for _, p := range outermost(prefixes, ipv6) {
		list = append(list, interval(s, addrField(p.Addr()), addrField(lastAddr(p)), "")...)
	}
	return list
}

// nameIntervals are the interface names that match the patterns.
func nameIntervals(s *set, patterns []string) []element {
	var wild, exact []string
	for _, p := range patterns {
		if prefix, isWild := strings.CutSuffix(p, "*"); isWild {
			wild = append(wild, prefix)
		} else {
			exact = append(exact, p)
		}
	}
	wild, exact = shortest(wild), slices.Compact(slices.Sorted(slices.Values(exact)))
	var list []element
	for _, w := range wild {
		last := []byte(padName(w))
		for i := len(w); i < len(last); i++ {
			last[i] = 0xff
		}
		list = append(list, interval(s, padName(w), string(last), "")...)
	}
	for _, e := range exact {
		if !slices.ContainsFunc(wild, func(w string) bool { return strings.HasPrefix(e, w) }) {
			list = append(list, interval(s, padName(e), padName(e), "")...)
		}
	}
	return list
}

// shortest are the prefixes that begin with no other one, sorted.
func shortest(prefixes []string) []string {
	var out []string
	for _, p := range slices.Sorted(slices.Values(prefixes)) {
		if n := len(out); n == 0 || !strings.HasPrefix(p, out[n-1]) {
			out = append(out, p)
		}
	}
	return out
}
