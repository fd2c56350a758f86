package bench

import (
	"context"
	"fmt"
	"time"
)

// peakPause is the time between two looks at an agent's memory.
const peakPause = 10 * time.Millisecond

// peak is the most memory that the processes of a cgroup had while they were watched:
// resident at its highest, as the kernel knows it, and of their own, without files, at
// the highest of all looks.
type peak struct{ resident, own int64 }

func (p peak) String() string {
	return fmt.Sprintf("%d MB resident at the highest; at most %d MB without files", p.resident>>20, p.own>>20)
}

// watchPeak looks at memory until the function that it returns is called, which says
// what was seen.
func watchPeak(u *usage) (end func() (peak, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var top peak
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			m, err := u.resident()
			if err != nil {
				failed = err
				return
			}
			top = peak{resident: max(top.resident, m.highest), own: max(top.own, m.anonymous)}
			pause(ctx, peakPause)
		}
	}()
	return func() (peak, error) {
		cancel()
		<-ended
		return top, failed
	}
}
