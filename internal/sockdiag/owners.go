// Package sockdiag reaches for sockets of any process by their cookies: in the processes
// that have them open, and in the kernel's lists (sock_diag(7)), where it ends them.
package sockdiag

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// EachOwner finds sockets by their cookies in the processes that have them
// open, and calls visit with a descriptor of the same socket (pidfd_getfd(2),
// Linux 5.6), which it closes then. Those that visit has dealt with are taken
// out of wanted. Processes that this one can't see, or must not touch, keep
// theirs.
func EachOwner[V any](wanted map[uint64]V, visit func(fd int, v V) error) error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	seen := map[string]bool{}
	for _, dir := range processes {
		if len(wanted) == 0 {
			return nil
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		if err := eachSocketOf(pid, seen, wanted, visit); err != nil {
			return err
		}
	}
	return nil
}

func eachSocketOf[V any](pid int, seen map[string]bool, wanted map[uint64]V, visit func(int, V) error) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has ended, or isn't ours to look at
	}
	process := -1
	defer func() { closeQuietly(process) }()
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(name, "socket:") || seen[name] {
			continue // closed meanwhile, or no socket
		}
		seen[name] = true
		if process < 0 {
			if process, err = unix.PidfdOpen(pid, 0); err != nil {
				return nil // it has ended
			}
		}
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("list descriptors of process %d: %w", pid, err)
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			delete(seen, name)
			continue // closed meanwhile, or not ours to touch: another process may have it, too
		}
		err = offer(fd, wanted, visit)
		closeQuietly(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// offer lets visit have a socket if it is wanted.
func offer[V any](fd int, wanted map[uint64]V, visit func(int, V) error) error {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	v, is := wanted[cookie]
	if err != nil || !is {
		return nil // not ours to look at, or another one
	}
	if err := visit(fd, v); err != nil {
		if errors.Is(err, ErrNotDone) {
			return nil
		}
		return err
	}
	delete(wanted, cookie)
	return nil
}

// ErrNotDone says that a socket is to be left in wanted.
var ErrNotDone = errors.New("not done")

// closeQuietly closes a descriptor that only this process has; that can't fail.
func closeQuietly(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}
