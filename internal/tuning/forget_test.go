package tuning

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestForgettingTheStartLosesNothing: what is given back comes back when it is
// needed, as this very program does by going on.
func TestForgettingTheStartLosesNothing(t *testing.T) {
	for range 3 {
		if err := ForgetStart(); err != nil {
			t.Fatal(err)
		}
		maps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.ToUpper(string(maps)), "RSS:") {
			t.Error("no mappings")
		}
	}
}

// TestExecutableIsForgotten: pages of the executable that were mapped aren't any more, but
// those that going on needs.
func TestExecutableIsForgotten(t *testing.T) {
	before := touchText(t)
	if err := ForgetExecutable(); err != nil {
		t.Fatal(err)
	}
	if after := fileMemory(t); after >= before {
		t.Errorf("%d kB of files are mapped, and were %d before", after, before)
	}
}

// touchText reads every page of this program's instructions, and returns how many kB of
// files are mapped then.
func touchText(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x r-xp", &from, &to); err != nil || !strings.Contains(line, "/") {
			continue
		}
		if _, err := memory.ReadAt(make([]byte, to-from), from); err != nil {
			t.Fatal(err)
		}
	}
	return fileMemory(t)
}

// fileMemory is how many kB of files are mapped and in memory.
func fileMemory(t *testing.T) (kb int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kb); err != nil || !found {
		t.Fatalf("%v in %s", err, status)
	}
	return kb
}
