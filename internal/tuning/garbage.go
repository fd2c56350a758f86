package tuning

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Collecting garbage costs what marking all that is in use costs, each time as
// much garbage has gathered as is in use (GOGC=100). A server whose requests
// leave much of it and whose cache is small collects all the time; this has it
// wait until a fixed amount has gathered. So does an agent that takes in the whole
// API, for which it would otherwise spend a quarter of its time on collecting.
const (
	shareOfRoom    = 16  // of the memory that this process may use
	mostPercent    = 400 // of what is in use
	defaultPercent = 100 // Go's
)

// TuneGC lets garbage gather up to a sixteenth of the memory that this
// process may use, and up to most, before it is collected; at least `least` percent
// of the live heap, and at most four times the live heap. GOGC in the environment goes before it.
// From when end is called, nothing of that holds any more.
func TuneGC(most uint64, least int) (end func(), err error) {
	if os.Getenv("GOGC") != "" {
		return func() {}, nil
	}
	memory, err := root("/").memory()
	if err != nil {
		return nil, err
	}
	room := min(most, memory/shareOfRoom)
	stop := afterCollections(func(live uint64) int { return percentFor(live, room, least) })
	return func() {
		stop()
		debug.SetGCPercent(defaultPercent)
	}, nil
}

// tightPercent is the least that BoundGarbage has wait.
const tightPercent = 25

// Go takes GOGC of at least this.
const heapMinimum = 4 << 20

// Bound is when garbage is collected. GOGC in the environment goes before it.
type Bound struct {
	// Heap is how large the heap gets at least, but for a quarter of the memory that this
	// process may use, in bytes.
	Heap uint64
	// Room is how much garbage gathers at most, in bytes, and Percent how much, in
	// hundredths of what is in use. At least a quarter of what is in use does.
	Room    uint64
	Percent int
}

// BoundGarbage has garbage collected so: an agent's changes leave little of it, so that
// collecting more often is hardly noticed. From when end is called, nothing of that holds
// any more.
func BoundGarbage(b Bound) (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	memory, err := root("/").memory()
	if err != nil { // nothing is known to bound it
		memory = 0
	}
	heap := min(b.Heap, memory/4)
	return afterCollections(func(live uint64) int {
		return max(percentTo(live, roots(), heap), boundedPercent(live, b.Room, b.Percent))
	})
}

// percentTo is the GOGC with which garbage is collected when the heap has this size. Go takes
// it of what is in use and of the roots: stacks and global variables.
func percentTo(live, roots, heap uint64) int {
	if heap <= live {
		return 0
	}
	return int((heap-live)*100/max(live+roots, heapMinimum)) / 5 * 5
}

func roots() uint64 {
	sizes := []metrics.Sample{{Name: "/gc/scan/globals:bytes"}, {Name: "/gc/scan/stack:bytes"}}
	metrics.Read(sizes)
	return sizes[0].Value.Uint64() + sizes[1].Value.Uint64()
}

func boundedPercent(live, room uint64, most int) int {
	percent := int(min(room*100/max(live, 1), uint64(most)))
	return max(percent/5*5, tightPercent)
}

// idlePercent is how much of it a server lets gather that has little to do, in hundredths of
// what is in use.
const idlePercent = 50

// BoundIdleGarbage is BoundGarbage, with room, for a server whose requests leave garbage: while
// collections follow each other within half a second, ever more may gather, up to
// busy or a sixteenth of the memory that this process may use, and less again once they
// haven't for a while. Once there are none, what isn't in use goes back to the system.
func BoundIdleGarbage(room, busy uint64) (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(idlePercent)
	if memory, err := root("/").memory(); err == nil { // else nothing is known to bound it
		busy = max(min(busy, memory/shareOfRoom), room)
	}
	r, idle := &busyRoom{least: room, most: busy, now: room}, newIdleReturn()
	return afterCollections(func(live uint64) int {
		idle.collected()
		if r.collected(time.Now()) == r.least {
			return boundedPercent(live, r.least, idlePercent)
		}
		return max(percentFor(live, r.now, 0), boundedPercent(live, r.least, idlePercent))
	})
}

// A collection that follows within hurried is one too many. Requests come in bursts, so
// only when none was hurried for calm is less room enough.
const (
	hurried = 500 * time.Millisecond
	calm    = 10 * time.Second
)

// busyRoom is how much garbage may gather, as often as it is collected.
type busyRoom struct {
	least, most, now uint64
	last             time.Time
	changed          time.Time // when it was hurried last, or there was less room
}

// collected returns the room until the next collection.
func (r *busyRoom) collected(at time.Time) uint64 {
	switch {
	case r.last.IsZero():
		r.changed = at
	case at.Sub(r.last) < hurried:
		r.now, r.changed = min(r.now*2, r.most), at
	case at.Sub(r.changed) > calm:
		r.now, r.changed = max(r.now/2, r.least), at
	}
	r.last = at
	return r.now
}

// afterCollections sets GOGC to what suits what is in use, until end is called.
func afterCollections(percentFor func(live uint64) int) (end func()) {
	var mu sync.Mutex
	percent, ended := 0, false
	afterEachCollection(func() bool {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return false
		}
		if p := percentFor(inUse()); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
		return true
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}

// inUse is what the last collection found to be in use. Before the first one, which may be
// under way, it is all that is there.
func inUse() uint64 {
	sizes := []metrics.Sample{{Name: liveBytes}, {Name: garbageBytes}}
	metrics.Read(sizes)
	if live := sizes[0].Value.Uint64(); live > 0 {
		return live
	}
	return sizes[1].Value.Uint64()
}

// percentFor is the GOGC that leaves this room, in steps of 25, since setting it
// stops all goroutines for a moment.
func percentFor(live, room uint64, least int) int {
	percent := int(min(room*100/max(live, 1), mostPercent))
	return max(percent/25*25, least)
}

// collected is garbage from the beginning: it ends with each collection, and
// begins again as long as do says so.
type collected struct{ do func() bool }

func afterEachCollection(do func() bool) { (&collected{do}).again() }

func (c *collected) again() {
	if c.do() {
		runtime.SetFinalizer(c, (*collected).again)
	}
}

// memory is how much this process may use: the machine's, or what its cgroup or
// one above it allows (cgroups(7); Documentation/admin-guide/cgroup-v2.rst,
// memory.max; cgroup-v1/memory.rst, memory.limit_in_bytes).
func (r root) memory() (uint64, error) {
	least, err := r.machineMemory()
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(filepath.Join(string(r), "proc/self/cgroup"))
	if err != nil {
		return least, nil //nolint:nilerr // a kernel without cgroups limits nothing
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch fields[1] {
		case "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case "":
		default:
			continue
		}
		for path := fields[2]; ; path = filepath.Dir(path) {
			limit, err := os.ReadFile(filepath.Join(string(r), dir, path, file))
			if err == nil { // "max" is no number
				if n, err := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64); err == nil {
					least = min(least, n)
				}
			}
			if path == "/" || path == "." {
				break
			}
		}
	}
	return least, nil
}

func (r root) machineMemory() (uint64, error) {
	data, err := os.ReadFile(filepath.Join(string(r), "proc/meminfo"))
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if text, found := strings.CutPrefix(line, "MemTotal:"); found {
			n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the machine's memory: %w", err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read the machine's memory: %s has no MemTotal", "/proc/meminfo")
}
