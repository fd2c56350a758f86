package ipset

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairway-net/fairway/model"
)

// Element is what an ipset holds, of whatever type: the fields that its type
// does not have are zero.
type Element struct {
	Addr  netip.Addr
	Port  uint16
	Proto model.Protocol
	Net   netip.Prefix // the network of hash:ip,port,net and hash:net, the second address of hash:ip,port,ip
}

// Mark is what an element puts on packets: skb->mark = skb->mark &^ mask ^ value.
type Mark struct{ Value, Mask uint32 }

// Text spells the element as ipset does.
func (e Element) Text(typ string) string {
	port := fmt.Sprintf("%s:%d", e.Proto, e.Port)
	switch typ {
	case HashIPPort:
		return e.Addr.String() + "," + port
	case HashIPPortIP:
		return e.Addr.String() + "," + port + "," + e.Net.Addr().String()
	case HashIPPortNet:
		return e.Addr.String() + "," + port + "," + prefixText(e.Net)
	case HashIP:
		return e.Addr.String()
	case HashNet:
		return prefixText(e.Net)
	}
	return strconv.Itoa(int(e.Port))
}

// prefixText leaves the length of a host's prefix away, as ipset does.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Text spells the mark as ipset does.
func (m Mark) Text() string {
	switch {
	case m == Mark{}:
		return ""
	case m.Mask == ^uint32(0):
		return fmt.Sprintf("skbmark %#x", m.Value)
	}
	return fmt.Sprintf("skbmark %#x/%#x", m.Value, m.Mask)
}

// Compare orders elements.
func (e Element) Compare(o Element) int {
	if c := e.Addr.Compare(o.Addr); c != 0 {
		return c
	}
	if c := cmp.Compare(e.Port, o.Port); c != 0 {
		return c
	}
	if c := cmp.Compare(e.Proto, o.Proto); c != 0 {
		return c
	}
	if c := e.Net.Addr().Compare(o.Net.Addr()); c != 0 {
		return c
	}
	return cmp.Compare(e.Net.Bits(), o.Net.Bits())
}
