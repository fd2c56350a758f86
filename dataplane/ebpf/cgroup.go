package ebpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// findCgroup is the cgroup whose sockets are the node's: see kernel.Options.
func findCgroup(options kernel.Options) (string, error) {
	if options.Cgroup != "" {
		return options.Cgroup, nil
	}
	root, err := cgroup.Root()
	if err != nil {
		return "", err
	}
	machine, err := inMachineNamespace()
	if err != nil || machine {
		return root, err
	}
	own, err := cgroup.Own()
	if err != nil {
		return "", err
	}
	if own == "" {
		return "", errors.New("find the own cgroup: /proc/self/cgroup names none of version 2")
	}
	return filepath.Join(root, own), nil
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
	cookie, err := netns.Cookie()
	if !errors.Is(err, netns.ErrNoCookie) {
		return cookie, err
	}
	machine, machineErr := inMachineNamespace()
	if machineErr != nil {
		return 0, machineErr
	}
	if !machine {
		return 0, &kernel.MissingError{What: "cookies of network namespaces, to tell nodes apart that share a kernel", Since: "5.7", Err: err}
	}
	return 0, nil
}
