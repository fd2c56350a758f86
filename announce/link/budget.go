package link

import "time"

const (
	// window is the time that budgets are for.
	window = time.Second
	// badOfStranger and badOfPeer are how many frames of one MAC are looked at in a window that
	// turn out not to be believed. A node's MAC has more: others may use it, and a node that
	// sends ten thousand addresses at once may have been heard late.
	badOfStranger = 50
	badOfPeer     = 1000
	// floodedAt is how many bad frames of all sources flood a port: from then on the kernel
	// hands on one of sampleOneIn frames of strangers.
	floodedAt   = 1000
	sampleOneIn = 512
	// mostSources bounds the sources whose bad frames are counted one by one.
	mostSources = 256
)

// budget counts bad frames in a window. It belongs to the goroutine that reads.
type budget struct {
	began         time.Time
	bad           int
	sources, last map[[6]byte]int // of this window, and of the one before
}

func newBudget() budget { return budget{sources: map[[6]byte]int{}, last: map[[6]byte]int{}} }

// pass begins a new window when the last one is over, and returns how many bad frames that one
// had; -1 if it isn't over.
func (b *budget) pass(now time.Time) (bad int) {
	if now.Sub(b.began) < window {
		return -1
	}
	bad = b.bad
	b.began, b.bad = now, 0
	b.sources, b.last = b.last, b.sources
	clear(b.sources)
	return bad
}

// has reports whether a frame of a source is to be looked at.
func (b *budget) has(source [6]byte, isPeer bool) bool {
	most := badOfStranger
	if isPeer {
		most = badOfPeer
	}
	n, counted := b.sources[source]
	if !counted && !isPeer && len(b.sources) >= mostSources {
		return b.bad < floodedAt
	}
	return n < most
}

// isOver reports whether a node's MAC had too many bad frames lately.
func (b *budget) isOver(source [6]byte) bool {
	return b.sources[source] >= badOfPeer || b.last[source] >= badOfPeer
}

// spend counts a bad frame.
func (b *budget) spend(source [6]byte) {
	b.bad++
	if _, counted := b.sources[source]; counted || len(b.sources) < mostSources {
		b.sources[source]++
	}
}
