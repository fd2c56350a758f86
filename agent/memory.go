package agent

import (
	"runtime/debug"

	"github.com/fairway-net/fairway/internal/tuning"
)

// startupHeap is how large the heap gets before garbage is collected, while an agent takes in
// the API and programs the kernel for the first time: its highest resident memory is 40 MB more.
const startupHeap = 52 << 20

// When garbage is collected: while the API is listed, during the first Apply, which takes the
// most memory, and afterwards. It matters in large clusters.
var (
	whileListing = tuning.Bound{Heap: startupHeap, Room: 1 << 40, Percent: 50}
	firstApply   = tuning.Bound{Heap: startupHeap, Room: 20 << 20, Percent: 50}
	afterStart   = tuning.Bound{Room: 20 << 20, Percent: 100}
)

// boundGarbage bounds garbage until what it returns is called.
func boundGarbage(config Config, b tuning.Bound) (end func()) {
	if !config.TuneGC {
		return func() {}
	}
	return tuning.BoundGarbage(b)
}

// releaseInitMemory precedes the lists of the API. To initialise every library that is
// linked in maps half of the executable.
func (a *Agent) releaseInitMemory() { a.released(tuning.ForgetExecutable()) }

// releaseListMemory follows the lists of the API, when the first table is complete.
func (a *Agent) releaseListMemory() {
	a.listed.Do(func() {
		a.startIsOver()
		a.startIsOver = boundGarbage(a.config, firstApply)
		a.released(tuning.ForgetExecutable())
	})
}

// releaseStartupMemory follows the first sync.
func (a *Agent) releaseStartupMemory() {
	a.startIsOver()
	boundGarbage(a.config, afterStart)
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
