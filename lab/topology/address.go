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

func (o Options) withDefaults() (Options, error) {
	for _, f := range []struct {
		field    string
		prefix   *netip.Prefix
		fallback string
		maxBits  int
	}{
		{"Underlay4", &o.Underlay4, "172.30.0.0/16", 16},
		{"Underlay6", &o.Underlay6, "fd00:172:30::/64", 64},
		{"Pods4", &o.Pods4, "10.244.0.0/16", nodeBits4 - 1},
		{"Pods6", &o.Pods6, "fd00:10:244::/56", nodeBits6 - 1},
	} {
		fallback := netip.MustParsePrefix(f.fallback)
		if !f.prefix.IsValid() {
			*f.prefix = fallback
		}
		if f.prefix.Addr().Is4() != fallback.Addr().Is4() {
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
