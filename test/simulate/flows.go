package simulate

import (
	"net/netip"
	"time"
)

// flow is a connection of a client to an address.
type flow struct {
	address netip.Addr
	at      *machine // that has it
	life    bool
}

// clientsCome has clients open connections all the time.
func (w *world) clientsCome() {
	const every, packets = 300 * time.Millisecond, 200 * time.Millisecond
	for _, a := range w.addresses {
		if !w.anywhere[a] && w.oneIn(2) {
			w.connect(a)
		}
	}
	w.after(every+w.some(every), w.clientsCome)
	w.after(w.some(packets), w.sendPackets)
}

// entry is the machine where packets for an address arrive; nil if there is none.
func (w *world) entry(a netip.Addr) *machine {
	if m := w.clients[a]; m != nil && m.power && m.answers(a) {
		return m
	}
	for _, m := range w.machines {
		if m.answers(a) {
			w.clients[a] = m
			return m
		}
	}
	return nil
}

// connect has a client open a connection, which is the answering machine's from then on.
func (w *world) connect(a netip.Addr) {
	m := w.entry(a)
	if m == nil || m.out {
		return
	}
	f := &flow{address: a, at: m, life: true}
	w.flows = append(w.flows, f)
	m.conns[a]++
	w.after(w.some(10*time.Second), func() { w.end(f) })
}

func (w *world) end(f *flow) {
	if !f.life {
		return
	}
	f.life = false
	if f.at.conns[f.address] > 0 {
		f.at.conns[f.address]--
	}
}

// sendPackets sends one of each connection, and looks whether it gets there.
func (w *world) sendPackets() {
	left := w.flows[:0]
	for _, f := range w.flows {
		if !f.life {
			continue
		}
		if f.at.conns[f.address] == 0 { // it lost its power
			f.life = false
			continue
		}
		if w.route(f) {
			left = append(left, f)
		} else {
			w.end(f)
		}
	}
	clear(w.flows[len(left):])
	w.flows = left
	for _, a := range w.addresses {
		w.route(&flow{address: a}) // a packet of a connection that is over
	}
}

// route reports whether a packet of a connection comes to where the connection is.
func (w *world) route(f *flow) bool {
	m := w.entry(f.address)
	if m == nil {
		return true // nobody answers; the client sends it again
	}
	for hops := 0; m != f.at; hops++ {
		to, led := m.leads[f.address]
		next := w.machineOf(to)
		switch {
		case hops > len(w.machines):
			w.watch.circle(w, f.address)
			return true
		case !led || next == nil:
			if w.watch.noCircle(f.address); f.at != nil {
				w.watch.lost(w, f, m)
			}
			return false
		case !next.power:
			return true
		}
		m = next
	}
	w.watch.noCircle(f.address)
	return true
}
