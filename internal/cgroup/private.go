package cgroup

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Reach is [Root], or, where no hierarchy is mounted, a mount of this process's
// own that nobody else sees (fsmount(2), Linux 5.2): /sys may have been mounted
// anew, as ip-netns(8) does. The directory holds for this process only. The error
// is [ErrNone] if the kernel has no cgroup v2.
func Reach() (string, error) {
	root, err := Root()
	if !errors.Is(err, ErrNone) {
		return root, err
	}
	return private()
}

// private mounts the hierarchy once in the life of the process.
var private = sync.OnceValues(func() (string, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOSYS) {
		return "", ErrNone
	}
	if err != nil {
		return "", &kernel.MissingError{What: "a mounted cgroup v2 hierarchy, or the right to mount one (CAP_SYS_ADMIN)", Since: "5.2", Err: err}
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", fmt.Errorf("make a cgroup mount: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("make a cgroup mount: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
})
