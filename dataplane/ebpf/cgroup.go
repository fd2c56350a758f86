package ebpf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// findCgroup is the cgroup whose sockets are the node's: see kernel.Options.
func findCgroup(options kernel.Options) (string, error) {
	if options.Cgroup != "" {
		return options.Cgroup, nil
	}
	root, err := cgroupRoot()
	if err != nil {
		return "", err
	}
	machine, err := inMachineNamespace()
	if err != nil || machine {
		return root, err
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return filepath.Join(root, path), nil
		}
	}
	return "", errors.New("find the own cgroup: /proc/self/cgroup names none of version 2")
}

// cgroupRoot finds where cgroup v2 is mounted: /sys/fs/cgroup on most machines,
// /sys/fs/cgroup/unified where version 1 is in use beside it.
func cgroupRoot() (string, error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("find the cgroup mount: %w", err)
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("find the cgroup mount: %w", err)
	}
	return "", &kernel.MissingError{What: "a mounted cgroup v2 hierarchy", Since: "4.5"}
}

// initialOnly is a sysctl that only the network namespace has with which the
// machine booted (net/core/sysctl_net_core.c, net_core_table).
const initialOnly = "/proc/sys/net/core/netdev_max_backlog"

// inMachineNamespace reports whether this process is in that namespace.
func inMachineNamespace() (bool, error) {
	_, err := os.Stat(initialOnly)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("identify the machine's network namespace: %w", err)
	}
	return err == nil, nil
}

// netnsCookie is what programs know the node's network namespace by. 0 stands
// for the one that the machine booted with, where the kernel can't tell.
func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err == nil {
		return cookie, nil
	}
	machine, machineErr := inMachineNamespace()
	if machineErr != nil {
		return 0, machineErr
	}
	if !errors.Is(err, unix.ENOPROTOOPT) || !machine {
		return 0, &kernel.MissingError{What: "SO_NETNS_COOKIE, to tell nodes apart that share a kernel", Since: "5.14", Err: err}
	}
	return 0, nil
}
