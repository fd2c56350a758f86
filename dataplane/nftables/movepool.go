package nftables

import (
	"net/netip"

	"github.com/fairway-net/fairway/internal/weights"
	"github.com/fairway-net/fairway/model"
)

// alike reports whether each backend of a pool has one slot, and no client is remembered.
func alike(p *model.Pool) bool {
	if p == nil || p.Affinity != 0 || len(p.Backends) > maxBackends {
		return false
	}
	for _, b := range p.Backends {
		if b.Weight != p.Backends[0].Weight {
			return false
		}
	}
	return true
}

// movePool is setPool for a pool whose backends are alike before and after: it returns no
// elements of those that stay. A Service may have twenty thousand endpoints, of which one
// changes.
func (st *state) movePool(ps *poolState, p *model.Pool) (before, after []element) {
	gone, came := map[netip.AddrPort]bool{}, []netip.AddrPort(nil)
	was := *ps
	for i, lists := range [][2][]model.Backend{{was.pool.Backends, p.Backends}, {was.pool.Draining, p.Draining}} {
		old, next := lists[0], lists[1]
		model.EachDifference(old, next, func(o, n int) {
			if o >= 0 && n >= 0 {
				return // what they say beside the address is not in the kernel
			}
			if o >= 0 {
				st.countBackend(backendKeyOf(old[o], p.ID.Proto), -1, func(b backendKey) { before = append(before, backendElement(b)) })
				if i == 0 {
					gone[old[o].AddrPort()] = true
				}
				return
			}
			st.countBackend(backendKeyOf(next[n], p.ID.Proto), +1, func(b backendKey) { after = append(after, backendElement(b)) })
			if i == 0 {
				came = append(came, next[n].AddrPort())
			}
		})
	}
	ps.pool, ps.slots = p, weights.Replace(was.slots, gone, came)
	for i := range max(len(was.slots), len(ps.slots)) {
		if i < len(was.slots) && i < len(ps.slots) && was.slots[i] == ps.slots[i] {
			continue
		}
		if i < len(was.slots) {
			before = append(before, was.slotElement(i))
		}
		if i < len(ps.slots) {
			after = append(after, ps.slotElement(i))
		}
	}
	return append(before, st.choosing(&was)), append(after, st.choosing(ps))
}

// slotElement is one of the pool's slots.
func (ps *poolState) slotElement(i int) element {
	return element{set: setsOf(ps.pool.ID.IPv6).slots, key: native(ps.number) + native(uint32(i)), data: addrPortFields(ps.slots[i]), comment: label(ps.pool.ID)}
}

// choosing is how the pool chooses, where it doesn't remember clients.
func (st *state) choosing(ps *poolState) element {
	return element{set: pools, key: native(ps.number), data: native(uint32(st.choice(ps))), comment: label(ps.pool.ID)}
}
