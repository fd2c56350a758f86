package ebpf

import "github.com/fairway-net/fairway/internal/kernel"

// ids gives numbers to pools, backends and frontends. A number that is free
// again rests for a while: sockets and clients may still be remembered with it.
type ids struct {
	next  uint32 // the lowest never given
	free  []uint32
	taken map[uint32]bool
}

// resting is how many free numbers there must be before one is given again.
const resting = 4 * chunkSize

// maxIDs is how many numbers there are (bpf/types.h, CHUNKS).
const maxIDs = chunks * chunkSize

func newIDs() *ids { return &ids{next: firstID, taken: map[uint32]bool{}} }

// take gives a number, and says whether it was given before.
func (s *ids) take() (id uint32, again bool, err error) {
	if len(s.free) > resting || s.next >= maxIDs && len(s.free) > 0 {
		id = s.free[0]
		s.free = s.free[1:]
		s.taken[id] = true
		return id, true, nil
	}
	for s.next < maxIDs {
		id := s.next
		s.next++
		if !s.taken[id] {
			s.taken[id] = true
			return id, false, nil
		}
	}
	return 0, false, &kernel.FullError{What: "the eBPF map counts", LeftOut: 1}
}

// adopt takes a number that an earlier process gave. It reports whether it can.
func (s *ids) adopt(id uint32) bool {
	if id < firstID || id >= maxIDs || s.taken[id] {
		return false
	}
	s.taken[id] = true
	return true
}

func (s *ids) release(id uint32) {
	if s.taken[id] {
		delete(s.taken, id)
		s.free = append(s.free, id)
	}
}
