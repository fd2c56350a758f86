package agent

import (
	"runtime/debug"

	"github.com/fairway-net/fairway/internal/tuning"
)

// garbageLimit is how much of it may gather in a large cluster, whatever is in use.
const garbageLimit = 28 << 20

// startupGarbage bounds how much garbage gathers while an agent starts, as long as less
// than that is in use. With 10,000 Services of five endpoints, 256 MB had the
// resident memory 40 MB larger at its highest; since objects are not held until the
// end of a list, they saved no processor time that could be told from noise.
const startupGarbage = 28 << 20

// allowStartupGarbage lets garbage gather until what it returns is called.
func allowStartupGarbage(config Config) (end func()) {
	if !config.TuneGC {
		return func() {}
	}
	end, err := tuning.RoomForGarbage(startupGarbage, startupPercent)
	if err != nil {
		config.Log.Warn("the start takes longer than necessary", "error", err)
		return func() {}
	}
	return end
}

// startupPercent is how much garbage may gather at least, in hundredths of what is in use.
const startupPercent = 50

// releaseInitMemory precedes the lists of the API. To initialise every library that is
// linked in maps half of the executable.
func (a *Agent) releaseInitMemory() { a.released(tuning.ForgetExecutable()) }

// releaseListMemory follows the lists of the API, when the first table is complete:
// the plane's first Apply, which takes the most memory, begins without their garbage,
// and little of its own gathers.
func (a *Agent) releaseListMemory() {
	a.listed.Do(func() {
		a.startIsOver()
		a.startIsOver = leanApply(a.config)
		a.released(tuning.ForgetStart())
	})
}

// leanApply keeps the first Apply small until what it returns is called: of garbage, at
// most half as much gathers as is in use. With 10,000 Services of five endpoints the
// agent's own memory is at most 80 MB in ebpf mode, and was 98 MB.
func leanApply(config Config) (end func()) {
	if !config.TuneGC {
		return func() {}
	}
	return tuning.BoundGarbage(applyGarbage)
}

// applyGarbage bounds what of it gathers during the first Apply.
const applyGarbage = 20 << 20

// releaseStartupMemory follows the first sync.
func (a *Agent) releaseStartupMemory() {
	a.startIsOver()
	if a.config.TuneGC {
		tuning.BoundGarbage(garbageLimit)
	}
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
