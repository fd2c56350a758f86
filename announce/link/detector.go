package link

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"
)

// The times of a Detector. Nodes send twice in 100 ms.
const (
	// suspectAfter is how long nothing was heard of a node that is asked whether it is there.
	suspectAfter = 150 * time.Millisecond
	// missingAfter is how long nothing was heard of a node that is missing, if it doesn't answer
	// either.
	missingAfter = 250 * time.Millisecond
	// asksFor is how long asking may take whose outcome counts.
	asksFor = 250 * time.Millisecond
	// askAgain is how soon a node is asked again that can't be asked, or that answered and
	// says nothing; askMissing how soon one that is missing is.
	askAgain   = 200 * time.Millisecond
	askMissing = 5 * time.Second
	// votesFor is how long another node's word about missing ones counts.
	votesFor = 500 * time.Millisecond
	// knownFor is how long a silent node is known, and so how long its peers' word stands before
	// its Lease alone counts.
	knownFor = time.Minute
	// mostMissing is how many nodes a message names as missing.
	mostMissing = 32
)

// Detector finds out which nodes are gone: failure detection by agreement. A node is missing for
// this one when nothing was heard of it for a moment, on no link, and it doesn't answer when it
// is asked another way. It is gone once more than half of the nodes known, itself counted, say
// that they miss it. With two nodes there is nobody to agree with, and each goes by itself.
//
// So a node that is cut off from most others takes nobody for gone; nor does one that is too slow
// to listen, since it asks again when it is awake. A nil Detector knows nothing.
type Detector struct {
	mu    sync.Mutex
	nodes map[string]*suspect
	met   []string // nodes that are new since Run looked
	gone  []string
	wake  chan struct{}
}

// Inquiry is how nodes are asked whether they are there, and who hears what comes of it.
type Inquiry struct {
	// Ask asks a node that is silent, in some way that needs no agent there.
	Ask func(ctx context.Context, node string) Answer
	// Met is told of each node that is heard for the first time, and again after it was away for
	// long. It doesn't wait.
	Met func(node string)
	// Changed is told of the nodes that are gone, once at the start and whenever these change.
	Changed func(gone []string)
	// IsAlone reports whether no API server answers: then nobody else will say of a node that it
	// is gone, or that it is there after all, and what peers agree on stands.
	IsAlone func() bool
}

// Answer is how asking a node ended.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota // nobody knows how to ask it
	Silent
	Answers
)

// suspect is another node, whether or not anything is wrong with it.
type suspect struct {
	id      uint32
	heard   time.Time // a message of it
	there   time.Time // it was heard or answered
	asking  bool
	asked   time.Time // when that began
	again   time.Time // not to be asked before
	missing bool
	misses  map[uint32]bool // whom it says that it misses
	told    time.Time       // when it last did
}

// NewDetector returns a detector that knows no nodes.
func NewDetector() *Detector {
	return &Detector{nodes: map[string]*suspect{}, wake: make(chan struct{}, 1)}
}

// Heard takes in a message of a node that was believed. Says is whom it misses; nil if the message
// doesn't say.
func (d *Detector) Heard(now time.Time, node string, says *Missing) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[node]
	if n == nil {
		if len(d.nodes) >= mostPeers {
			return
		}
		n = &suspect{id: HashOf(node)}
		d.nodes[node] = n
		d.met = append(d.met, node)
		d.poke()
	}
	n.heard, n.again = now, time.Time{} // of a silence before this one nothing holds
	d.found(now, n)
	if says != nil {
		n.told = now
		clear(n.misses)
		for _, id := range says.Nodes {
			if n.misses == nil {
				n.misses = map[uint32]bool{}
			}
			n.misses[id] = true
		}
	}
	if len(n.misses) > 0 || len(d.gone) > 0 {
		d.judge(now)
	}
}

// found notes that a node is there.
func (d *Detector) found(now time.Time, n *suspect) {
	n.there = now
	if n.missing {
		n.missing = false
		d.judge(now)
	}
}

// Left takes in that a node has ended its agent, or is out: it is none of the link's any more,
// and nothing follows for its endpoints.
func (d *Detector) Left(now time.Time, node string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
	d.judge(now)
}

// Missing is whom this node misses.
func (d *Detector) Missing() *Missing {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	m := &Missing{}
	for _, name := range slices.Sorted(maps.Keys(d.nodes)) {
		if n := d.nodes[name]; n.missing && len(m.Nodes) < mostMissing {
			m.Nodes = append(m.Nodes, n.id)
		}
	}
	return m
}

// Known are the nodes of which something was heard in the last minute, and those that are gone.
func (d *Detector) Known() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.nodes))
}

// Gone are the nodes that are gone, sorted.
func (d *Detector) Gone() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.gone)
}

// step looks at all nodes, and returns those to be asked now and when to look again.
func (d *Detector) step(now time.Time, isAlone func() bool) (ask []string, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pause = suspectAfter
	for name, n := range d.nodes {
		if now.Sub(n.heard) > knownFor && (!n.missing || !isAlone()) {
			delete(d.nodes, name) // what its Lease says counts
			continue
		}
		due := n.there.Add(suspectAfter)
		if n.again.After(due) {
			due = n.again
		}
		switch wait := due.Sub(now); {
		case n.asking:
		case wait > 0:
			pause = min(pause, wait)
		default:
			n.asking, n.asked = true, now
			ask = append(ask, name)
		}
	}
	d.judge(now)
	return ask, pause
}

// asked takes in how asking a node ended that was suspected: it answers, or it doesn't, or nobody
// can say.
func (d *Detector) asked(now time.Time, node string, a Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[node]
	if n == nil {
		return
	}
	n.asking = false
	silent := now.Sub(n.there)
	switch {
	case a == Answers:
		n.again = now.Add(askAgain)
		d.found(now, n)
	case a == Unknown:
		n.again = now.Add(askAgain)
	case now.Sub(n.asked) > asksFor: // this machine was too slow to hear an answer
	case silent >= missingAfter:
		n.missing, n.again = true, now.Add(askMissing)
		d.judge(now)
	}
	d.poke()
}

// judge finds out who is gone.
func (d *Detector) judge(now time.Time) {
	known := 1 + len(d.nodes)
	var gone []string
	for name, n := range d.nodes {
		if !n.missing {
			continue
		}
		votes := 1
		for _, other := range d.nodes {
			if other != n && !other.missing && other.misses[n.id] && now.Sub(other.told) <= votesFor {
				votes++
			}
		}
		if 2*votes > known || known == 2 {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	if !slices.Equal(gone, d.gone) {
		d.gone = gone
		d.poke()
	}
}

// Run asks silent nodes, and tells who is gone, until ctx is done.
func (d *Detector) Run(ctx context.Context, by Inquiry) {
	var asking sync.WaitGroup
	defer asking.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	told, first := []string(nil), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-next.C:
		}
		for _, node := range d.newlyMet() {
			by.Met(node)
		}
		ask, pause := d.step(time.Now(), by.IsAlone)
		for _, node := range ask {
			asking.Go(func() {
				answer := by.Ask(ctx, node)
				d.asked(time.Now(), node, answer)
			})
		}
		if gone := d.Gone(); first || !slices.Equal(gone, told) {
			told, first = gone, false
			by.Changed(gone)
		}
		next.Reset(pause)
	}
}

// newlyMet are the nodes that were heard for the first time since it was last called.
func (d *Detector) newlyMet() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	met := d.met
	d.met = nil
	return met
}

// HashOf stands for a node's name in messages.
func HashOf(node string) uint32 {
	sum := sha256.Sum256([]byte(node))
	return binary.BigEndian.Uint32(sum[:])
}

func (d *Detector) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Missing is whom a node misses, as its messages say it.
type Missing struct{ Nodes []uint32 }

// Clone is a copy; of nil nil.
func (m *Missing) Clone() *Missing {
	if m == nil {
		return nil
	}
	return &Missing{Nodes: slices.Clone(m.Nodes)}
}

// Fit leaves out those for which a message has no room, and returns how much the others take.
func (m *Missing) Fit(room int) (length int) {
	if m == nil {
		return 0
	}
	m.Nodes = m.Nodes[:max(0, min(len(m.Nodes), (room-1)/4))]
	return 1 + 4*len(m.Nodes)
}

// Append writes whom a node misses behind what else a message says.
func (m *Missing) Append(b []byte) []byte {
	b = append(b, byte(len(m.Nodes)))
	for _, id := range m.Nodes {
		b = binary.BigEndian.AppendUint32(b, id)
	}
	return b
}

// ParseMissing reads whom a node misses; nil if the message doesn't say.
func ParseMissing(b []byte) *Missing {
	if len(b) == 0 || len(b) < 1+4*int(b[0]) {
		return nil
	}
	m := &Missing{}
	for i := range int(b[0]) {
		m.Nodes = append(m.Nodes, binary.BigEndian.Uint32(b[1+4*i:]))
	}
	return m
}
