// Package allocator chooses cluster IPs and node ports. It remembers which are
// taken, so that a choice costs the same however many there are. The memory is
// only a hint: etcd decides, where a number belongs to the object that claims
// it. If the memory is wrong, another attempt is made.
package allocator

import (
	"math/rand/v2"
	"sync"
)

// pool chooses free numbers in [0, size).
type pool struct {
	mu   sync.Mutex
	size uint64
	band uint64
	// taken holds the revision since which a number is taken, or, negative,
	// since which it is free again. The latter are kept until the watch has
	// caught up, which would otherwise report an older taking as news.
	taken    map[uint64]int64
	reserved map[uint64]int
}

// newPool returns a pool of size numbers. Numbers below band are chosen only
// when the others are used up, so that people can ask for them by number
// without meeting an automatic one (KEP-3070, KEP-3668).
func newPool(size, band uint64) *pool {
	return &pool{size: size, band: band, taken: map[uint64]int64{}, reserved: map[uint64]int{}}
}

// attempts at random before looking at every number in turn.
const attempts = 32

// next reserves a free number at random; false if there is none.
func (p *pool) next() (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.pick(p.band, p.size)
	if !ok {
		n, ok = p.pick(0, p.band)
	}
	if ok {
		p.reserved[n]++
	}
	return n, ok
}

func (p *pool) pick(from, to uint64) (uint64, bool) {
	if from >= to {
		return 0, false
	}
	for range attempts {
		if n := from + rand.Uint64N(to-from); p.free(n) {
			return n, true
		}
	}
	start := rand.Uint64N(to - from)
	// One more number than are remembered: among those one is free, so that
	// a huge (IPv6) range is never walked to its end.
	for i := range min(to-from, uint64(len(p.taken)+len(p.reserved)+1)) {
		if n := from + (start+i)%(to-from); p.free(n) {
			return n, true
		}
	}
	return 0, false
}

func (p *pool) free(n uint64) bool { return p.taken[n] <= 0 && p.reserved[n] == 0 }

// reserve keeps a number that was asked for from being chosen meanwhile, and
// says whether it looks free.
func (p *pool) reserve(n uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.taken[n] <= 0
	p.reserved[n]++
	return free
}

// release gives up a reservation. What has been taken meanwhile stays taken.
func (p *pool) release(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reserved[n]--; p.reserved[n] <= 0 {
		delete(p.reserved, n)
	}
}

// take records that a number was taken at a revision.
func (p *pool) take(n uint64, revision int64) { p.record(n, revision) }

// recordFree records that a number became free at a revision.
func (p *pool) recordFree(n uint64, revision int64) { p.record(n, -revision) }

func (p *pool) record(n uint64, signed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if abs(signed) > abs(p.taken[n]) {
		p.taken[n] = signed
	}
}

// confirmFree records what recordFree does, from the watch: nothing older follows.
func (p *pool) confirmFree(n uint64, revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if abs(p.taken[n]) <= revision {
		delete(p.taken, n)
	}
}

// reset forgets everything taken up to a revision.
func (p *pool) reset(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, r := range p.taken {
		if abs(r) <= revision {
			delete(p.taken, n)
		}
	}
}

// counts returns how many numbers are taken and how many reserved.
func (p *pool) counts() (taken, reserved int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.taken {
		if r > 0 {
			taken++
		}
	}
	return taken, len(p.reserved)
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
