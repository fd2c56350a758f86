package agent

import (
	"math"
	"runtime/debug"

	"github.com/fairway-net/fairway/internal/tuning"
)

// garbageLimit is how much of it may gather in a large cluster, whatever is in use.
const garbageLimit = 28 << 20

// startupHeap is how large the heap gets before garbage is collected, while an agent takes in
// the API and programs the kernel for the first time: its highest resident memory is 40 MB more.
const startupHeap = 52 << 20

// collectSeldom lets garbage gather while the API is listed, until what it returns is called:
// in a large cluster, half as much as is in use.
func collectSeldom(config Config) (end func()) {
	return boundGarbage(config, startupHeap, math.MaxUint64/100)
}

func boundGarbage(config Config, heap, room uint64) (end func()) {
	if !config.TuneGC {
		return func() {}
	}
	return tuning.BoundGarbage(heap, room)
}

// releaseInitMemory precedes the lists of the API. To initialise every library that is
// linked in maps half of the executable.
func (a *Agent) releaseInitMemory() { a.released(tuning.ForgetExecutable()) }

// releaseListMemory follows the lists of the API, when the first table is complete:
// the plane's first Apply, which takes the most memory, begins without their garbage,
// and little of its own gathers.
func (a *Agent) releaseListMemory() {
	a.listed.Do(func() {
		a.startIsOver()
		a.startIsOver = boundGarbage(a.config, startupHeap, applyGarbage)
		a.released(tuning.ForgetExecutable())
	})
}

// applyGarbage bounds what of it gathers during the first Apply in a large cluster.
const applyGarbage = 20 << 20

// releaseStartupMemory follows the first sync.
func (a *Agent) releaseStartupMemory() {
	a.startIsOver()
	boundGarbage(a.config, 0, garbageLimit)
	a.released(tuning.ForgetStart())
}

func (a *Agent) released(err error) {
	if err != nil {
		a.config.Log.Warn("memory used by the start was not released", "error", err)
	}
}

// releaseComparisonMemory returns to the system what only comparing with the kernel needed,
// which in iptables mode is as much as all the rest: every rule, read and made anew.
func (a *Agent) releaseComparisonMemory() {
	if a.config.TuneGC {
		go debug.FreeOSMemory()
	}
}
