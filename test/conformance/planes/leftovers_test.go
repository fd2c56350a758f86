package planes

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// TestLeftoversOfNothing: planes that an agent makes only to remove what an earlier
// process may have left don't change nf_tables where there is nothing. Another plane
// would read all of it again to find out what that was.
func TestLeftoversOfNothing(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	tool, err := iptables.Open(t.Context(), iptables.NFT)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range dataplane.Kinds() {
		plane, err := kind.New(kernel.Options{StateDir: t.TempDir()})
		if kernel.IsMissing(err) {
			continue // what the mode needs isn't here, so neither can be what it left
		}
		if err == nil {
			err = plane.Remove(t.Context(), kernel.HandOver)
		}
		if err != nil {
			t.Fatal(err)
		}
		generation, err := tool.Generation()
		if err != nil || generation != 1 {
			t.Fatalf("%s: nf_tables is at generation %d (%v), want 1", kind.Name, generation, err)
		}
	}
}
