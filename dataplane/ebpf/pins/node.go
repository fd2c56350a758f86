package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// initialOnly is a sysctl that only the network namespace has with which the
// machine booted (net/core/sysctl_net_core.c, net_core_table).
const initialOnly = "/proc/sys/net/core/netdev_max_backlog"

// InMachineNamespace reports whether this process is in that namespace.
func InMachineNamespace() (bool, error) {
	_, err := os.Stat(initialOnly)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("identify the machine's network namespace: %w", err)
	}
	return err == nil, nil
}

// NetnsCookie is what programs know the node's network namespace by. 0 stands
// for the one that the machine booted with, where the kernel can't tell.
func NetnsCookie() (uint64, error) {
	cookie, err := netns.Cookie()
	if !errors.Is(err, netns.ErrNoCookie) {
		return cookie, err
	}
	machine, machineErr := InMachineNamespace()
	if machineErr != nil {
		return 0, machineErr
	}
	if !machine {
		return 0, &kernel.MissingError{What: "cookies of network namespaces, to tell nodes apart that share a kernel", Since: "5.7", Err: err}
	}
	return 0, nil
}

func NodeDir() (string, error) {
	cookie, err := NetnsCookie()
	if err != nil {
		return "", err
	}
	if cookie != 0 {
		return filepath.Join(nodesDir, fmt.Sprint(cookie)), nil
	}
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		return "", fmt.Errorf("identify network namespace: %w", err)
	}
	return filepath.Join(nodesDir, fmt.Sprint("inode", stat.Ino)), nil
}
