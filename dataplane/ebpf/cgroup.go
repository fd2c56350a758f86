package ebpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// findCgroup is the cgroup whose sockets are the node's (see kernel.Options),
// and why it can't be all of them; "" if nothing says so.
func findCgroup(options kernel.Options) (dir, narrow string, err error) {
	if options.Cgroup != "" {
		return options.Cgroup, "", nil
	}
	root, err := cgroup.Root()
	if err != nil {
		return "", "", err
	}
	machine, err := inMachineNamespace()
	if err != nil {
		return "", "", err
	}
	if machine {
		narrow, err = belowRoot(root)
		return root, narrow, err
	}
	own, err := cgroup.Own()
	if err != nil {
		return "", "", err
	}
	if own == "" {
		return "", "", errors.New("find the own cgroup: /proc/self/cgroup names none of version 2")
	}
	dir = filepath.Join(root, own)
	narrow, err = withoutChildren(dir)
	return dir, narrow, err
}

// belowRoot says so if a directory isn't the root of the machine's hierarchy,
// which alone has no cgroup.events (Documentation/admin-guide/cgroup-v2.rst). A
// container with a cgroup namespace of its own finds its own cgroup mounted in
// the root's place, unless the host's is mounted there.
func belowRoot(dir string) (string, error) {
	_, err := os.Stat(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("identify the root cgroup: %w", err)
	}
	return fmt.Sprintf("the cgroup mounted at %s is that of a container and not the machine's root", dir), nil
}

// withoutChildren says so if a cgroup has none below it: where pods have
// cgroups of their own, theirs are elsewhere.
func withoutChildren(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look for the node's cgroups: %w", err)
	}
	if slices.ContainsFunc(entries, fs.DirEntry.IsDir) {
		return "", nil
	}
	return fmt.Sprintf("the agent's own cgroup %s has no others below it", dir), nil
}

// socketsLack is what is told of sockets that aren't in the cgroup.
func socketsLack(narrow string) kernel.Lack {
	return kernel.Lack{Feature: kernel.NodeSockets, Why: narrow + ", so that only sockets in it are connected to endpoints directly, and all other connections are translated at the interfaces: " +
		"mount the host's /sys/fs/cgroup (the component deploy/ebpf), or name the node's cgroup with --cgroup"}
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
