package topology

import (
	"fmt"
	"math/big"
	"net/netip"
)

const (
	nodeBits4 = 24 // pod CIDR of one node
	nodeBits6 = 64
)

// DefaultOptions are the ranges of a lab that is given none.
func DefaultOptions() Options {
	return Options{
		Underlay4: netip.MustParsePrefix("172.30.0.0/16"),
		Underlay6: netip.MustParsePrefix("fd00:172:30::/64"),
		Pods4:     netip.MustParsePrefix("10.244.0.0/16"),
		Pods6:     netip.MustParsePrefix("fd00:10:244::/56"),
	}
}

func (o Options) withDefaults() (Options, error) {
	d := DefaultOptions()
	for _, f := range []struct {
		field    string
		prefix   *netip.Prefix
		fallback netip.Prefix
		maxBits  int
	}{
		{"Underlay4", &o.Underlay4, d.Underlay4, 16},
		{"Underlay6", &o.Underlay6, d.Underlay6, 64},
		{"Pods4", &o.Pods4, d.Pods4, nodeBits4 - 1},
		{"Pods6", &o.Pods6, d.Pods6, nodeBits6 - 1},
	} {
		if !f.prefix.IsValid() {
			*f.prefix = f.fallback
		}
		if f.prefix.Addr().Is4() != f.fallback.Addr().Is4() {
			return o, fmt.Errorf("%s %v: wrong IP family", f.field, *f.prefix)
		}
		if f.prefix.Bits() > f.maxBits {
			return o, fmt.Errorf("%s %v: too small, must be a /%d or larger", f.field, *f.prefix, f.maxBits)
		}
		*f.prefix = f.prefix.Masked()
	}
	return o, nil
}

// nth is the prefix's address number n.
func nth(p netip.Prefix, n int) netip.Addr { return offset(p.Addr(), n, 0) }

// subnet is the prefix's network number n of the given length.
func subnet(p netip.Prefix, bits, n int) (netip.Prefix, error) {
	if room := bits - p.Bits(); room < 31 && n >= 1<<room {
		return netip.Prefix{}, fmt.Errorf("%v has no more room: it holds %d networks of /%d", p, 1<<room, bits)
	}
	return netip.PrefixFrom(offset(p.Addr(), n, p.Addr().BitLen()-bits), bits), nil
}

// offset is a + n<<shift.
func offset(a netip.Addr, n, shift int) netip.Addr {
	sum := new(big.Int).SetBytes(a.AsSlice())
	sum.Add(sum, new(big.Int).Lsh(big.NewInt(int64(n)), uint(shift)))
	raw := sum.FillBytes(make([]byte, a.BitLen()/8))
	b, ok := netip.AddrFromSlice(raw)
	if !ok {
		panic(fmt.Sprintf("%d bytes are no address", len(raw)))
	}
	return b
}
