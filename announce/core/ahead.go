package core

import (
	"maps"
	"net/netip"
	"time"
)

// ahead are the addresses that the data plane is about to have in force, with when the link
// was asked for the first time whether somebody has them: the answer has come, if there is
// one, when they are claimed.
type ahead map[netip.Addr]time.Time

// aheadFor is how long a question that was asked ahead counts.
const aheadFor = 2 * time.Second

func (h ahead) has(a netip.Addr, now time.Time) bool {
	asked, ok := h[a]
	return ok && now.Sub(asked) < aheadFor
}

// take returns how many questions an address that is claimed still has to be asked, and when
// to go on with it.
func (h ahead) take(a netip.Addr, now time.Time) (left int, next time.Time) {
	if !h.has(a, now) {
		return probes, now
	}
	next = h[a].Add(firstWait)
	delete(h, a)
	if next.Before(now) {
		next = now
	}
	return probes - 1, next
}

// Expect asks the link whether somebody has addresses that this node is about to be ready
// to announce. It asks for nothing before the other nodes are known.
func (a *Announcer) Expect(now time.Time, addresses map[netip.Addr]int32) []Effect {
	for address := range a.ahead {
		if !a.ahead.has(address, now) {
			delete(a.ahead, address)
		}
	}
	for _, address := range inOrder(maps.Keys(addresses)) {
		_, wanted := a.wanted[address]
		if wanted || a.claims[address] != nil || a.ahead.has(address, now) || now.Before(a.election.ready) || a.election.ownerOf(address) != "" {
			continue
		}
		a.do(Probe{address})
		a.ahead[address] = now
	}
	return a.taken()
}
