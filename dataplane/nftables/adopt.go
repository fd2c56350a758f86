package nftables

import (
	"net/netip"
)

// adoptedPool is what the kernel knows of a pool.
type adoptedPool struct {
	number uint32
	slots  []netip.AddrPort
}

// adopt reads pool numbers and slots out of the kernel's table. A number that
// two pools claim is nobody's.
func (c *contents) adopt() (byLabel map[string]adoptedPool, next uint32) {
	byLabel = map[string]adoptedPool{}
	next = 1
	for _, e := range c.elements[pools.name] {
		n := fromNative(e.key)
		if n == 0 || n > maxPool || e.comment == "" {
			continue
		}
		next = max(next, n+1)
		if _, double := byLabel[e.comment]; double {
			delete(byLabel, e.comment)
			continue
		}
		byLabel[e.comment] = adoptedPool{number: n}
	}
	slots := map[uint32][]element{}
	for _, own := range []*familySets{v4, v6} {
		for _, e := range c.elements[own.slots.name] {
			n := fromNative(e.key[:4])
			slots[n] = append(slots[n], e)
		}
	}
	for name, a := range byLabel {
		a.slots = make([]netip.AddrPort, len(slots[a.number]))
		for _, e := range slots[a.number] {
			if i := int(fromNative(e.key[4:])); i < len(a.slots) {
				a.slots[i] = readAddrPort(e.data)
			}
		}
		byLabel[name] = a
	}
	return byLabel, next
}

func readAddrPort(data string) netip.AddrPort {
	if len(data) < 8 {
		return netip.AddrPort{}
	}
	n := len(data) - 4
	addr, _ := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(addr, uint16(data[n])<<8|uint16(data[n+1]))
}

// usable reports whether the table is one that this plane can work with, as
// opposed to one of another layout or one that somebody took apart.
func (c *contents) usable() bool {
	if c.comment != tableComment {
		return false
	}
	for _, s := range sets {
		if found := c.sets[s.name]; found == nil || found.ours == nil {
			return false
		}
	}
	for _, want := range fixedChains() {
		if found := c.chains[want.name]; found != nil && !found.matches(&want) {
			return false
		}
	}
	return true
}
