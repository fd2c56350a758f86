package tuning

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// TestRoomShrinksWithWhatIsInUse: a small heap gets four times its size, one as
// large as the room the least that is asked for.
func TestRoomShrinksWithWhatIsInUse(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, room     uint64
		least, percent int
	}{
		{0, 64 * mib, 100, 400}, {16 * mib, 64 * mib, 100, 400}, {32 * mib, 64 * mib, 100, 200}, {40 * mib, 64 * mib, 100, 150},
		{64 * mib, 64 * mib, 100, 100}, {1024 * mib, 64 * mib, 100, 100},
		{16 * mib, 24 * mib, 50, 150}, {28 * mib, 24 * mib, 50, 75}, {48 * mib, 24 * mib, 50, 50},
	} {
		if p := percentFor(c.live, c.room, c.least); p != c.percent {
			t.Errorf("%d MiB in use, room for %d, at least %d %%: %d %%, want %d", c.live/mib, c.room/mib, c.least, p, c.percent)
		}
	}
}

func TestMemoryIsWhatTheCgroupAllows(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 4 << 30},
		{"above", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 1 << 30},
		{"container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 1 << 29},
		{"first version", map[string]string{"proc/self/cgroup": "4:memory:/x\n2:cpu:/y\n0::/\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "536870912\n"}, 1 << 29},
		{"no cgroups", nil, 4 << 30},
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/meminfo", "MemFree: 1 kB\nMemTotal:        4194304 kB\n")
		for name, text := range c.files {
			write(name, text)
		}
		if got, err := root(dir).memory(); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

// TestAfterEachCollection counts collections, until it has enough of them.
func TestAfterEachCollection(t *testing.T) {
	done := make(chan int, 100)
	n := 0
	afterEachCollection(func() bool {
		n++
		done <- n
		return n < 4
	})
	for range 3 {
		<-done
		runtime.GC()
	}
	if last := <-done; last != 4 {
		t.Errorf("the last was the %d.", last)
	}
	for range 3 {
		runtime.GC()
	}
	if len(done) > 0 {
		t.Error("it went on")
	}
}

// TestRoomEnds: what is set afterwards stays.
func TestRoomEnds(t *testing.T) {
	t.Setenv("GOGC", "")
	end, err := TuneGC(1<<30, defaultPercent)
	if err != nil {
		t.Fatal(err)
	}
	end()
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	for range 3 {
		runtime.GC()
	}
	if p := debug.SetGCPercent(50); p != 50 {
		t.Errorf("GOGC is %d, want 50", p)
	}
}

func TestBoundedPercent(t *testing.T) {
	for _, c := range []struct {
		live, room uint64
		want       int
	}{
		{0, 28, 50}, {10, 28, 50}, {56, 28, 50},
		{60, 28, 45}, {80, 28, 35}, {100, 28, tightPercent}, {1000, 28, tightPercent},
	} {
		if got := boundedPercent(c.live<<20, c.room<<20, 50); got != c.want {
			t.Errorf("%d MiB in use, room for %d: GOGC %d, want %d", c.live, c.room, got, c.want)
		}
	}
}

// TestPercentTo: with it, Go's goal (in use, and GOGC of that and the roots) is the size.
func TestPercentTo(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, roots, heap uint64
		want              int
	}{
		{0, 0, 52 * mib, 1300}, // of four megabytes, the least that Go takes it of
		{10 * mib, 0, 52 * mib, 420}, {10 * mib, 2 * mib, 52 * mib, 350}, {40 * mib, 0, 52 * mib, 30},
		{52 * mib, 0, 52 * mib, 0}, {100 * mib, 0, 52 * mib, 0}, {10 * mib, 0, 0, 0},
	} {
		if got := percentTo(c.live, c.roots, c.heap); got != c.want {
			t.Errorf("%d MiB in use, roots %d, heap %d: GOGC %d, want %d", c.live/mib, c.roots/mib, c.heap/mib, got, c.want)
		}
	}
}

// TestHeapIsReached: with less in use, nothing is collected before the heap has its size.
func TestHeapIsReached(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(defaultPercent))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	size := m.HeapAlloc + 40<<20
	end := BoundGarbage(Bound{Heap: size})
	defer end()
	runtime.GC()
	runtime.ReadMemStats(&m)
	if before := m.NumGC; m.NextGC < size-8<<20 || m.NextGC > size+8<<20 {
		t.Errorf("after %d collections the next one is at %d, want %d", before, m.NextGC, size)
	}
}

// TestInitialPercentEnds: with the first collection, which this process has behind it, GOGC
// is Go's own again, unless somebody has set it meanwhile.
func TestInitialPercentEnds(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(initialPercent))
	for _, c := range []struct{ set, want int }{{initialPercent, defaultPercent}, {70, 70}} {
		debug.SetGCPercent(initialPercent)
		seldomAtFirst()
		debug.SetGCPercent(c.set)
		for range wait.Tries(30 * time.Millisecond) { // finalizers run in their own time
			runtime.GC()
		}
		if got := debug.SetGCPercent(defaultPercent); got != c.want {
			t.Errorf("set to %d, GOGC is %d after a collection, want %d", c.set, got, c.want)
		}
	}
}

// TestBoundEnds: GOGC follows what is in use, and what is set afterwards stays.
func TestBoundEnds(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	end := BoundGarbage(Bound{})
	for tries := 0; ; tries++ {
		runtime.GC() // finalizers run some time afterwards
		p := debug.SetGCPercent(tightPercent)
		if p == tightPercent {
			break
		}
		if debug.SetGCPercent(p); tries == 1000 {
			t.Fatalf("GOGC is still %d", p)
		}
	}
	end()
	debug.SetGCPercent(60)
	for range 3 {
		runtime.GC()
	}
	if p := debug.SetGCPercent(60); p != 60 {
		t.Errorf("GOGC is %d, want 60", p)
	}
}

// TestBusyRoom: collections in a hurry get more room, up to the most, and keep it from
// one burst to the next; when none was hurried for a while it becomes what it was, step
// by step.
func TestBusyRoom(t *testing.T) {
	now := time.Now()
	r := &busyRoom{least: 10, most: 60, now: 10}
	for i, c := range []struct {
		after time.Duration
		want  uint64
	}{
		{0, 10}, {100 * time.Millisecond, 20}, {time.Second, 20}, {499 * time.Millisecond, 40}, {time.Millisecond, 60}, {time.Millisecond, 60},
		{2 * time.Second, 60}, {4 * time.Second, 60}, {time.Millisecond, 60}, {9 * time.Second, 60},
		{2 * time.Second, 30}, {9 * time.Second, 30}, {2 * time.Minute, 15}, {11 * time.Second, 10}, {11 * time.Second, 10},
	} {
		now = now.Add(c.after)
		if got := r.collected(now); got != c.want {
			t.Errorf("collection %d, after %s: room for %d, want %d", i, c.after, got, c.want)
		}
	}
}
