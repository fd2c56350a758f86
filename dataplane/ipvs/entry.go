package ipvs

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/ipset"
	"github.com/fairway-net/fairway/model"
)

// entry is one element of one set.
type entry struct {
	set setID
	ipset.Element
}

func keyElement(k model.Key) ipset.Element {
	return ipset.Element{Addr: k.Addr, Port: k.Port, Proto: k.Proto}
}

// hostPrefix is the prefix of one address.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// halves are the prefix itself, or its two halves if it is everything, which
// the hash:net types don't take.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p.Masked()}
	}
	upper := [16]byte{0x80}
	high := netip.AddrFrom16(upper)
	if p.Addr().Is4() {
		high = netip.AddrFrom4([4]byte{0x80})
	}
	return []netip.Prefix{netip.PrefixFrom(p.Masked().Addr(), 1), netip.PrefixFrom(high, 1)}
}
