package netns

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestCookie: namespaces differ, and the program says what the kernel says.
func TestCookie(t *testing.T) {
	seen := map[uint64]bool{}
	for range 2 {
		ns, err := Anonymous()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		var said, told uint64
		err = ns.Do(func() (err error) {
			if said, err = Cookie(); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			told, err = askProgram(fd)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if said != told || said == 0 || seen[said] {
			t.Errorf("cookie %d, and by a program %d; the other namespace's: %v", said, told, seen)
		}
		seen[said] = true
	}
}
