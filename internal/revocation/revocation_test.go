package revocation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestEntry(t *testing.T) {
	at := time.Date(2026, 11, 27, 9, 0, 0, 5, time.UTC)
	for _, e := range []Entry{{Until: at}, {Until: at, Gone: true}, {All: true}} {
		if got := Parse(e.String()); got != e {
			t.Errorf("%v is read as %v", e, got)
		}
		if !e.Revokes(at) || e.Revokes(at.Add(1)) != e.All {
			t.Errorf("%v revokes the wrong ones", e)
		}
	}
	for _, text := range []string{"", "soon", "2026", "2026-11-27T09:00:00Z left"} {
		if e := Parse(text); !e.Revokes(at.AddDate(100, 0, 0)) {
			t.Errorf("%q can't be read, and doesn't revoke everything", text)
		}
	}
}

// TestListsShareMachines: a hundred thousand machines fit.
func TestListsShareMachines(t *testing.T) {
	count := map[string]int{}
	for i := range 100_000 {
		name := ListOf(fmt.Sprint("machine-", i, ".example.com"))
		if !slices.Contains(Names(), name) {
			t.Fatalf("%s is no list", name)
		}
		count[name]++
	}
	for name, n := range count {
		if n > 10_000 {
			t.Errorf("%s has %d of them", name, n)
		}
	}
}
