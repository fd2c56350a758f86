package simulate

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// event is something that is to come.
type event struct {
	at   time.Duration
	nr   int // of events: those of one time in their order
	what func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].nr < q[j].nr
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

type mac [6]byte

// frame is what goes over the link.
type frame struct {
	kind     kind
	from, to mac // to nobody is to all
	// Of adverts: the whole frame, and whose kernel may read what it says.
	bytes []byte
	owns  []netip.Addr
	// Of ARP and NDP.
	address netip.Addr
	// Of answers.
	incarnation uint64
}

type kind int

const (
	kindAdvert kind = iota
	kindQuestion
	kindAnswer
	kindProbe // does somebody have the address?
	kindTell  // the sender has it
)

// port is what hears frames.
type port interface {
	mac() mac
	hear(frame)
}

// world is a link, and all that is on it.
type world struct {
	rand  *rand.Rand
	now   time.Duration
	queue queue
	nr    int
	trace func(format string, args ...any)

	machines  []*machine
	others    []*stranger
	ports     []port
	cut       map[[2]mac]bool // from, to
	loss      float64
	addresses []netip.Addr
	anywhere  map[netip.Addr]bool // connections go on at any node
	captured  []frame
	flows     []*flow
	clients   map[netip.Addr]*machine // where clients send packets for an address
	keys      keyring

	events int
	watch  watch
	broken string
}

// Time is the true time as agents see it: by a monotonic clock.
func (w *world) time() time.Time { return time.Unix(1e9, 0).Add(w.now) }

func (w *world) after(d time.Duration, what func()) {
	w.nr++
	heap.Push(&w.queue, event{w.now + max(d, 0), w.nr, what})
}

// some is a time up to the most.
func (w *world) some(most time.Duration) time.Duration {
	return time.Duration(w.rand.Int64N(int64(most)))
}

// oneIn is true once in so many times.
func (w *world) oneIn(n int) bool { return w.rand.IntN(n) == 0 }

// send has a frame go to all that it is for.
func (w *world) send(f frame) {
	if f.kind == kindAdvert && len(w.captured) < 64 {
		w.captured = append(w.captured, f)
	}
	for _, p := range w.ports {
		if p.mac() != f.from && (f.to == mac{} || f.to == p.mac()) {
			w.carry(f, p)
		}
	}
}

// carry has a frame arrive, and maybe again.
func (w *world) carry(f frame, to port) {
	const (
		usual, late           = time.Millisecond, 20 * time.Millisecond
		lateOneIn, twiceOneIn = 50, 100
	)
	for w.rand.Float64() >= w.loss && !w.cut[[2]mac{f.from, to.mac()}] {
		wait := w.some(usual)
		if w.oneIn(lateOneIn) {
			wait = w.some(late)
		}
		w.after(wait, func() { to.hear(f) })
		if !w.oneIn(twiceOneIn) {
			return
		}
	}
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && w.broken == "" {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.what()
		w.events++
		w.look()
	}
	if w.broken == "" {
		w.now = end
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
		w.trace = func(string, ...any) {}
	}
}

// machineOf is the machine that has a MAC; nil if none has.
func (w *world) machineOf(m mac) *machine {
	i := slices.IndexFunc(w.machines, func(n *machine) bool { return n.card == m })
	if i < 0 {
		return nil
	}
	return w.machines[i]
}
