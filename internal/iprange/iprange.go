// Package iprange reads and cuts ranges of IP addresses: CIDRs, and first and
// last addresses.
package iprange

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"strings"
)

// Range is the addresses from From to To, both included, of one family.
type Range struct{ From, To netip.Addr }

// Parse reads "192.0.2.0/24" or "192.0.2.10-192.0.2.20", of either family.
func Parse(text string) (Range, error) {
	text = strings.TrimSpace(text)
	if from, to, ok := strings.Cut(text, "-"); ok {
		return parseFromTo(text, strings.TrimSpace(from), strings.TrimSpace(to))
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return Range{}, fmt.Errorf("%q is neither a CIDR such as 192.0.2.0/24 nor a range such as 192.0.2.10-192.0.2.20", text)
	}
	return FromPrefix(prefix), nil
}

func parseFromTo(text, first, last string) (Range, error) {
	from, err := netip.ParseAddr(first)
	if err != nil {
		return Range{}, fmt.Errorf("range %q: %q is not an IP address", text, first)
	}
	to, err := netip.ParseAddr(last)
	if err != nil {
		return Range{}, fmt.Errorf("range %q: %q is not an IP address", text, last)
	}
	from, to = from.Unmap(), to.Unmap()
	switch {
	case from.Zone() != "" || to.Zone() != "":
		return Range{}, fmt.Errorf("range %q: addresses with a zone can't be given out", text)
	case from.Is4() != to.Is4():
		return Range{}, fmt.Errorf("range %q: begins and ends in different IP families", text)
	case to.Less(from):
		return Range{}, fmt.Errorf("range %q: ends before it begins", text)
	}
	return Range{from, to}, nil
}

// FromPrefix is the range of all addresses of a prefix.
func FromPrefix(p netip.Prefix) Range {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	from := p.Masked().Addr()
	bytes := from.AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	to, _ := netip.AddrFromSlice(bytes)
	return Range{from, to}
}

// Of is the range of one address.
func Of(a netip.Addr) Range { return Range{a, a} }

// Contains reports whether the range holds a.
func (r Range) Contains(a netip.Addr) bool {
	return r.From.Is4() == a.Is4() && !a.Less(r.From) && !r.To.Less(a)
}

// Overlaps reports whether the ranges have an address in common.
func (r Range) Overlaps(other Range) bool {
	return r.From.Is4() == other.From.Is4() && !r.To.Less(other.From) && !other.To.Less(r.From)
}

// Size is the number of addresses; more than an int64 holds count as its maximum.
func (r Range) Size() int64 {
	from, to := new(big.Int).SetBytes(r.From.AsSlice()), new(big.Int).SetBytes(r.To.AsSlice())
	n := to.Sub(to, from).Add(to, big.NewInt(1))
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (r Range) String() string { return r.From.String() + "-" + r.To.String() }

// Without returns what is left of ranges once the addresses of others are gone.
func Without(ranges, others []Range) []Range {
	for _, o := range others {
		var left []Range
		for _, r := range ranges {
			left = append(left, r.without(o)...)
		}
		ranges = left
	}
	return ranges
}

func (r Range) without(o Range) []Range {
	if !r.Overlaps(o) {
		return []Range{r}
	}
	var left []Range
	if r.From.Less(o.From) {
		left = append(left, Range{r.From, o.From.Prev()})
	}
	if o.To.Less(r.To) {
		left = append(left, Range{o.To.Next(), r.To})
	}
	return left
}
