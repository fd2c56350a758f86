package simulate

import (
	"net/netip"
	"slices"
	"time"
)

// usualLoss is the share of frames that get lost on a link that is well.
const usualLoss = 0.01

// disturbance is something that happens to a machine, or to the link.
type disturbance func(w *world, n *machine)

// rough are those that may lose connections, and have addresses answered for late.
var rough = []disturbance{
	func(w *world, n *machine) {
		w.trace("%s loses its power", n.name)
		n.cutPower()
	},
	func(w *world, n *machine) {
		w.trace("the agent of %s is killed", n.name)
		n.kill()
	},
	func(w *world, n *machine) {
		n.clock = w.some(2*time.Hour) - time.Hour
		w.trace("the clock of %s is set by %s", n.name, n.clock)
		n.kill()
	},
	func(w *world, n *machine) {
		if n.agent != nil {
			w.trace("%s is stopped", n.name)
			n.stopped = true
		}
	},
	func(w *world, n *machine) {
		if to := w.machines[w.rand.IntN(len(w.machines))]; to != n {
			w.trace("what %s says to %s is lost", n.name, to.name)
			w.cut[[2]mac{n.card, to.card}] = true
		}
	},
	func(w *world, _ *machine) {
		w.loss = w.rand.Float64() / 2
		w.trace("%.0f %% of frames are lost", 100*w.loss)
	},
	func(w *world, n *machine) {
		w.trace("%s is busy", n.name)
		n.busy = true
	},
	func(_ *world, n *machine) { n.start() },
	func(w *world, n *machine) { w.leave(n) },
	func(w *world, _ *machine) {
		a := w.addresses[w.rand.IntN(len(w.addresses))]
		w.trace("the Service of %s comes or goes", a)
		gone := !w.machines[0].served[a]
		for _, m := range w.machines {
			w.after(w.some(100*time.Millisecond), func() { m.serve(a, gone) })
		}
	},
}

// gentle are those by which nobody is to notice anything.
var gentle = []disturbance{
	func(w *world, n *machine) {
		n.drained = !n.drained
		if w.trace("%s is drained: %t", n.name, n.drained); n.agent != nil {
			n.awake(n.agent, n.want)
		}
	},
	func(w *world, n *machine) {
		isAway := func(m *machine) bool { return m.agent == nil }
		if n.agent == nil || n.stopped || !n.kernel.can || w.watch.gentle && slices.ContainsFunc(w.machines, isAway) {
			return // one after the other, where nothing is to be lost: a node that begins has to hear some that know
		}
		w.trace("the agent of %s is replaced", n.name)
		n.kill()
		w.after(w.some(2*time.Second), n.start)
	},
	func(w *world, _ *machine) { w.rotate() },
	func(w *world, _ *machine) { w.replay() },
}

// leave ends an agent in order.
func (w *world) leave(n *machine) {
	if n.agent == nil || n.stopped {
		return
	}
	w.trace("%s leaves", n.name)
	life := n.agent
	n.carryOut(life.Leave())
	const poll, most = 10 * time.Millisecond, 2 * time.Second
	until := w.now + most
	var end func()
	end = func() {
		n.awake(life, func() {
			if life.IsAwaited() && w.now < until {
				w.after(poll, end)
				return
			}
			n.carryOut(life.End())
			n.kernel.owned, n.kernel.incarnation, n.leads = map[netip.Addr]uint32{}, 0, map[netip.Addr][6]byte{}
			n.kill()
		})
	}
	w.after(poll, end)
}

// serve has the data plane of a machine have an address, or not.
func (m *machine) serve(a netip.Addr, yes bool) {
	if m.served[a] == yes {
		return
	}
	delete(m.served, a)
	if yes {
		m.served[a] = true
	}
	if m.agent != nil {
		m.awake(m.agent, m.want)
	}
}

// heal ends all that disturbs.
func (w *world) heal() {
	w.trace("all is well again")
	w.watch.changed, w.loss = w.now, usualLoss
	clear(w.cut)
	for _, n := range w.machines {
		n.drained, n.busy = false, false
		n.goOn()
		for _, a := range w.addresses {
			n.serve(a, true)
		}
		if n.agent != nil {
			n.awake(n.agent, n.want)
		}
		n.start()
	}
}
