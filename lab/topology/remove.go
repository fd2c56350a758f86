package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/netns"
)

// Remove removes all that is left of a lab, whoever made it: processes in its
// cgroups, processes in its namespaces, the cgroups and the namespaces. A lab
// that doesn't exist is no error.
func Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	names, err := netns.Names(prefix(name))
	if err != nil {
		return err
	}
	errs := []error{removeCgroups(name), killInside(names)}
	for _, n := range names {
		errs = append(errs, netns.Remove(n))
	}
	return errors.Join(errs...)
}

// Exists says whether anything of the lab is there.
func Exists(name string) (bool, error) {
	names, err := netns.Names(prefix(name))
	if err != nil || len(names) > 0 {
		return len(names) > 0, err
	}
	root, err := cgroup.Root()
	if errors.Is(err, cgroup.ErrNone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = os.Stat(filepath.Join(root, cgroupParent, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// killInside ends the processes whose network namespace is one of the named:
// a namespace lives as long as a process does in it.
func killInside(names []string) error {
	inside := map[fileID]bool{}
	for _, n := range names {
		id, err := stat(filepath.Join(netns.Dir, n))
		if err != nil {
			return fmt.Errorf("find the processes of network namespace %s: %w", n, err)
		}
		inside[id] = true
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, dir := range processes {
		id, err := stat(filepath.Join(dir, "ns/net"))
		if err != nil || !inside[id] {
			continue // ended meanwhile, or not ours
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		if pid == os.Getpid() {
			continue // our first thread is in there for a moment
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}

type fileID struct{ dev, inode uint64 }

func stat(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{st.Dev, st.Ino}, nil
}

func isBusy(err error) bool {
	return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY)
}
