package simulate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fairway-net/fairway/announce/link"
)

// Result is what a seed led to.
type Result struct {
	// Broken says what was wrong; "" if nothing was.
	Broken string
	Events int
	// Time is what has passed on the link.
	Time time.Duration
}

// sizes are how many machines and addresses the link of a seed has.
func sizes(seed uint64) (machines, addresses int) {
	const bigOneIn, hugeOneIn = 500, 5000
	switch {
	case seed%hugeOneIn == hugeOneIn-1:
		return 100, 10
	case seed%bigOneIn == bigOneIn-1:
		return 20, 20
	}
	return 2 + int(seed)%3, 1 + int(seed/3)%3
}

func newWorld(seed uint64, trace func(string, ...any)) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 1)), cut: map[[2]mac]bool{}, anywhere: map[netip.Addr]bool{}, clients: map[netip.Addr]*machine{}, watch: newWatch(), loss: usualLoss,
	}
	w.trace = func(format string, args ...any) {
		trace("%12s "+format, append([]any{w.now}, args...)...)
	}
	w.keys.published = [][]byte{w.keys.next()}
	machines, addresses := sizes(seed)
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for i := range addresses {
		a := four
		if i%2 == 1 {
			a = six
		}
		w.addresses = append(w.addresses, a)
		if four, six = four.Next(), six.Next(); w.oneIn(4) {
			w.anywhere[a] = true
		}
	}
	weighted := w.oneIn(4)
	for i := range machines {
		m := &machine{
			world: w, name: fmt.Sprint("n", i), card: mac{2, 0, 0, 0, byte(i >> 8), byte(i)}, numbers: &link.Incarnations{}, served: map[netip.Addr]bool{},
			conns: map[netip.Addr]int{}, leads: map[netip.Addr][6]byte{}, kernel: kernel{can: !w.oneIn(8), owned: map[netip.Addr]uint32{}},
		}
		if weighted {
			m.weight = int32(w.rand.IntN(3))
		}
		for _, a := range w.addresses {
			m.served[a] = true
		}
		w.machines, w.ports = append(w.machines, m), append(w.ports, m)
		w.after(w.some(time.Second), m.start)
	}
	w.after(2*time.Second, w.clientsCome)
	return w
}

const (
	// settle is how long a link has until all is as it is to be.
	settle = mostNone + time.Second
	quiet  = time.Second
)

// Run has all happen that a seed brings.
func Run(seed uint64, trace func(format string, args ...any)) Result {
	w := newWorld(seed, trace)
	w.watch.changed = time.Second
	const outOneIn, foreignOneIn = 50, 100
	switch {
	case seed%foreignOneIn == 1:
		w.beTaken()
	case seed%outOneIn == 2:
		w.run(time.Second + settle)
		w.lockOut(w.machines[w.rand.IntN(len(w.machines))])
	default:
		w.run(time.Second + settle)
		w.beDisturbed()
		w.beDisturbed()
	}
	return Result{w.broken, w.events, w.now}
}

// beDisturbed has the link disturbed for a while, and looks whether it finds rest again.
func (w *world) beDisturbed() {
	const most, gentleOneIn = 10, 3
	kinds := append(append([]disturbance(nil), rough...), gentle...)
	if w.watch.gentle = w.oneIn(gentleOneIn); w.watch.gentle {
		kinds = gentle
	}
	for range 1 + w.rand.IntN(most) {
		w.run(w.some(time.Second))
		if !w.watch.gentle {
			w.watch.changed = w.now
		}
		kinds[w.rand.IntN(len(kinds))](w, w.machines[w.rand.IntN(len(w.machines))])
		if w.oneIn(4) {
			w.machines[w.rand.IntN(len(w.machines))].goOn()
		}
	}
	w.run(w.some(mostNone))
	w.watch.gentle = false
	w.heal()
	w.run(settle)
	w.isQuiet(quiet)
	w.captured = nil
	if w.oneIn(4) {
		s := w.comes(w.addresses[w.rand.IntN(len(w.addresses))], w.some(50*time.Millisecond))
		w.run(quiet)
		w.noteContest(s)
		s.gone = true
	}
}

// beTaken has a machine of others an address before the nodes come: they leave it alone, try it
// again now and then, and take it once it is free.
func (w *world) beTaken() {
	const conflict, free = 150 * time.Second, 150 * time.Second
	s := w.comes(w.addresses[0], 6*time.Millisecond+w.some(80*time.Millisecond))
	w.run(conflict)
	if n := w.watch.answered[s.address]; n > len(w.machines) {
		w.fail("nodes have begun to answer %d times for %s, which another machine has", n, s.address)
	}
	w.trace("%x is gone", s.card)
	s.gone = true
	w.watch.changed = w.now + free
	w.run(free + settle)
}

// lockOut has a machine out of the cluster, whatever its agent does: keys are rotated without it.
func (w *world) lockOut(m *machine) {
	w.trace("%s is out", m.name)
	m.out = true
	w.rotate()
	w.run(4*learnKeysIn + outAfter)
	m.expelled, w.watch.changed = true, w.now
	w.run(settle)
	if m.out, m.expelled = false, false; m.agent != nil {
		m.keys.Set(w.keys.published...)
		m.dropped = w.time()
	}
	w.watch.changed = w.now
	w.run(settle)
}
