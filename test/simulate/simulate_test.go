package simulate

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Seeds that have found something.
var found = []uint64{86, 125, 382, 2596, 3995}

// TestSimulate: whatever happens to a link, each address is answered for by one node soon after all
// is well again, no connection is led in a circle or lost by a planned move, no node keeps more than
// the link has, and the link is quiet.
//
//	FAIRWAY_SIMULATE=100000 go test ./test/simulate   # as many seeds
//	FAIRWAY_SEED=7 go test -v ./test/simulate         # one, with all that happens
func TestSimulate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if seed, err := strconv.ParseUint(os.Getenv("FAIRWAY_SEED"), 10, 64); err == nil {
		if r := Run(seed, t.Logf); r.Broken != "" {
			t.Error(r.Broken)
		}
		return
	}
	seeds := uint64(300)
	if n, err := strconv.ParseUint(os.Getenv("FAIRWAY_SIMULATE"), 10, 64); err == nil {
		seeds = n
	}
	for _, seed := range found {
		try(t, seed)
	}
	var next, events atomic.Uint64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for seed := next.Add(1) - 1; seed < seeds && !t.Failed(); seed = next.Add(1) - 1 {
				events.Add(uint64(try(t, seed)))
			}
		})
	}
	running.Wait()
	t.Logf("%d seeds, %d events", next.Load(), events.Load())
}

// try runs a seed. One that is broken is run again: its last events are printed.
func try(t *testing.T, seed uint64) (events int) {
	r := Run(seed, func(string, ...any) {})
	if r.Broken != "" {
		const last = 80
		var lines []string
		Run(seed, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
		t.Errorf("seed %d: %s\n%s", seed, r.Broken, strings.Join(lines[max(0, len(lines)-last):], "\n"))
	}
	return r.Events
}

// TestSameAgain: a seed has the same events each time, or it would tell nothing.
func TestSameAgain(t *testing.T) {
	for seed := range uint64(20) {
		var first, second []string
		note := func(list *[]string) func(string, ...any) {
			return func(format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
		}
		a, b := Run(seed, note(&first)), Run(seed, note(&second))
		if a != b || strings.Join(first, "\n") != strings.Join(second, "\n") {
			t.Errorf("seed %d: %+v, and %+v", seed, a, b)
		}
	}
}
