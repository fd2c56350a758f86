package agent

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/tuning"
)

// leanPercent is how much garbage may gather, in parts of a hundred of what is in
// use (GOGC). An endpoint change leaves little of it, so that collecting twice
// as often as usual is hardly noticed.
const leanPercent = 50

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
	if os.Getenv("GOGC") == "" && a.config.Lean {
		debug.SetGCPercent(leanPercent)
	}
	if err := forgetStart(); err != nil {
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

// forgetStart returns to the system what only starting needed: the garbage of
// decoding the whole API, and the parts of the executable that were mapped by
// initialising every library linked in. What is needed again comes back by
// itself, from the page cache.
func forgetStart() error {
	debug.FreeOSMemory()
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read own mappings: %w", err)
	}
	span := "" // the mapping that the lines are about, if it is of the executable
	for line := range strings.Lines(string(maps)) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && strings.Contains(f[0], "-"):
			span = ""
			if len(f) == 6 && f[5] == executable && !strings.Contains(f[1], "w") {
				span = f[0]
			}
		case span != "" && f[0] == "Anonymous:" && f[1] == "0":
			if err := forget(span); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget unmaps the pages of a range "from-to". None of it may ever have been
// written to, not by the dynamic linker either: it would be lost.
func forget(span string) error {
	var from, to uintptr
	if _, err := fmt.Sscanf(span, "%x-%x", &from, &to); err != nil {
		return fmt.Errorf("read mapping %q: %w", span, err)
	}
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	if errno != 0 {
		return fmt.Errorf("unmap %s of the executable: %w", span, errno)
	}
	return nil
}
