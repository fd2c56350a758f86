package tuning

import (
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
