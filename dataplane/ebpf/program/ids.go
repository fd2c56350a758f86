package program

// ids gives numbers to pools, backends and frontends. A number that is free
// again rests for a while: sockets and clients may still be remembered with it.
type ids struct {
	next  uint32 // the lowest never given
	free  []uint32
	taken bitset
}

// bitset holds numbers, a bit for each up to the largest.
type bitset []uint64

func (s bitset) has(n uint32) bool { return int(n/64) < len(s) && s[n/64]&(1<<(n%64)) != 0 }

func (s *bitset) add(n uint32) {
	for int(n/64) >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

// remove takes out a number that is in the set.
func (s bitset) remove(n uint32) { s[n/64] &^= 1 << (n % 64) }

// resting is how many free numbers there must be before one is given again.
const resting = 4 * ChunkSize

// maxIDs is how many numbers there are (bpf/types.h, CHUNKS).
const maxIDs = chunks * ChunkSize

func newIDs() *ids { return &ids{next: firstID} }

// take gives a number, and says whether somebody had it before.
func (s *ids) take() (id uint32, reused, ok bool) {
	if len(s.free) > resting || s.next >= maxIDs && len(s.free) > 0 {
		id = s.free[0]
		s.free = s.free[1:]
		s.taken.add(id)
		return id, true, true
	}
	for s.next < maxIDs {
		id := s.next
		s.next++
		if !s.taken.has(id) {
			s.taken.add(id)
			return id, false, true
		}
	}
	return 0, false, false
}

// adopt takes a number that an earlier process gave. It reports whether it can.
func (s *ids) adopt(id uint32) bool {
	if id < firstID || id >= maxIDs || s.taken.has(id) {
		return false
	}
	s.taken.add(id)
	return true
}

func (s *ids) release(id uint32) {
	if s.taken.has(id) {
		s.taken.remove(id)
		s.free = append(s.free, id)
	}
}
