package simulate

import (
	"net/netip"
	"time"
)

// stranger is a machine that is none of the cluster's, and has an address.
type stranger struct {
	*world
	card    mac
	address netip.Addr
	slow    time.Duration // until it answers
	gone    bool
}

func (s *stranger) mac() mac { return s.card }

func (s *stranger) hear(f frame) {
	if f.kind == kindProbe && f.address == s.address && !s.gone {
		s.after(s.slow, func() { s.tell(f.from) })
	}
}

func (s *stranger) tell(to mac) {
	if !s.gone {
		s.send(frame{kind: kindTell, from: s.card, to: to, address: s.address})
	}
}

// comes has a machine turn up with an address.
func (w *world) comes(a netip.Addr, slow time.Duration) *stranger {
	s := &stranger{world: w, card: mac{2, 0xee, 0, 0, 0, byte(len(w.others) + 1)}, address: a, slow: slow}
	w.trace("%x turns up with %s, and answers after %s", s.card, a, slow)
	w.others, w.ports = append(w.others, s), append(w.ports, s)
	for i := range 4 {
		w.after(time.Duration(i)*200*time.Millisecond, func() { s.tell(mac{}) })
	}
	return s
}

// has reports whether a stranger has an address.
func (w *world) has(a netip.Addr) bool {
	for _, s := range w.others {
		if s.address == a && !s.gone {
			return true
		}
	}
	return false
}

// replay sends frames once more that went over the link: in the name of their senders, or not.
func (w *world) replay() {
	own := mac{2, 0xbb, 0, 0, 0, byte(w.rand.IntN(200))}
	for _, f := range w.captured {
		if w.oneIn(2) {
			f.from = own
			f.bytes = append(append(append([]byte(nil), f.bytes[:6]...), own[:]...), f.bytes[12:]...)
		}
		f.owns = nil // whose agent is away, its kernel gives up; so it does if the machine claims the address by ARP
		w.send(f)
	}
}
