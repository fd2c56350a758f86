package agent

import (
	"runtime/debug"

	"github.com/fairway-net/fairway/internal/tuning"
)

// roomForGarbage is how much of it may gather in a large cluster, whatever is in use.
const roomForGarbage = 28 << 20

// startRoom bounds how much garbage gathers while an agent starts, as long as less
// than that is in use. With 10,000 Services of five endpoints, the resident memory
// then has been 65 MB larger at its highest, for a moment, and a start takes a fifth
// less processor time.
const startRoom = 256 << 20

// roomToStart lets garbage gather until what it returns is called.
func roomToStart(config Config) (end func()) {
	if !config.Lean {
		return func() {}
	}
	end, err := tuning.RoomForGarbage(startRoom)
	if err != nil {
		config.Log.Warn("starting takes longer than it might", "error", err)
		return func() {}
	}
	return end
}

// giveBack follows the first round.
func (a *Agent) giveBack() {
	a.startIsOver()
	if a.config.Lean {
		tuning.BoundGarbage(roomForGarbage)
	}
	if err := tuning.ForgetStart(); err != nil {
		a.config.Log.Warn("memory of starting is kept", "error", err)
	}
}

// forgetComparing returns to the system what only comparing with the kernel needed,
// which in iptables mode is as much as all the rest: every rule, read and made anew.
func (a *Agent) forgetComparing() {
	if a.config.Lean {
		go debug.FreeOSMemory()
	}
}
