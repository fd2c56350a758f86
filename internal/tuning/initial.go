package tuning

import (
	"os"
	"runtime"
	"runtime/debug"
)

// initialPercent is GOGC until the first collection. Packages that are linked in allocate ten
// megabytes to initialise themselves, nearly all of which stays: to collect meanwhile took
// a third of the processor time of a short command.
const initialPercent = 300

func init() { seldomAtFirst() }

func seldomAtFirst() {
	if os.Getenv("GOGC") != "" {
		return
	}
	debug.SetGCPercent(initialPercent)
	runtime.SetFinalizer(&collected{}, func(*collected) {
		if was := debug.SetGCPercent(defaultPercent); was != initialPercent {
			debug.SetGCPercent(was) // somebody knows better
		}
	})
}
