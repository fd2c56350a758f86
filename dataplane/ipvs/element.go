package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairway-net/fairway/model"
)

// element is what an ipset holds, of whatever type: the fields that its type
// does not have are zero.
type element struct {
	addr  netip.Addr
	port  uint16
	proto model.Protocol
	net   netip.Prefix // the network of hash:ip,port,net and hash:net, the second address of hash:ip,port,ip
}

// mark is what an element puts on packets: skb->mark = skb->mark &^ mask ^ value.
type mark struct{ value, mask uint32 }

// entry is one element of one set.
type entry struct {
	set setID
	element
}

func keyElement(k model.Key) element { return element{addr: k.Addr, port: k.Port, proto: k.Proto} }

// text spells the element as ipset does.
func (e element) text(typ string) string {
	port := fmt.Sprintf("%s:%d", e.proto, e.port)
	switch typ {
	case hashIPPort:
		return e.addr.String() + "," + port
	case hashIPPortIP:
		return e.addr.String() + "," + port + "," + e.net.Addr().String()
	case hashIPPortNet:
		return e.addr.String() + "," + port + "," + netText(e.net)
	case hashIP:
		return e.addr.String()
	case hashNet:
		return netText(e.net)
	}
	return strconv.Itoa(int(e.port))
}

// netText leaves the length of a host's prefix away, as ipset does.
func netText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func (m mark) text() string {
	switch {
	case m == mark{}:
		return ""
	case m.mask == ^uint32(0):
		return fmt.Sprintf("skbmark %#x", m.value)
	}
	return fmt.Sprintf("skbmark %#x/%#x", m.value, m.mask)
}

func (e element) compare(o element) int {
	if c := e.addr.Compare(o.addr); c != 0 {
		return c
	}
	if c := cmp.Compare(e.port, o.port); c != 0 {
		return c
	}
	if c := cmp.Compare(e.proto, o.proto); c != 0 {
		return c
	}
	if c := e.net.Addr().Compare(o.net.Addr()); c != 0 {
		return c
	}
	return cmp.Compare(e.net.Bits(), o.net.Bits())
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
