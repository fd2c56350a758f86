package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryLimit(t *testing.T) {
	root := t.TempDir()
	write := func(dir, text string) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, dir, "memory.max"), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("pod", "268435456")
	write("pod/agent", "max")
	write("free", "max")
	for own, want := range map[string]uint64{"/pod/agent": 256 << 20, "/pod": 256 << 20, "/free": math.MaxUint64, "/elsewhere": math.MaxUint64, "/": math.MaxUint64} {
		if n, err := memoryLimit(root, own); err != nil || n != want {
			t.Errorf("limit of %s: %d, %v, expected %d", own, n, err, want)
		}
	}
}

// TestReach looks for the hierarchy where /sys was mounted anew.
func TestReach(t *testing.T) {
	if _, err := Root(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	done := make(chan error, 1)
	var root string
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		done <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("empty", "/sys", "tmpfs", 0, ""); err != nil {
				return err
			}
			if root, err = private(); err != nil {
				return err
			}
			_, err = os.Stat(root + "/cgroup.procs")
			return err
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		t.Error(err)
	}
}
