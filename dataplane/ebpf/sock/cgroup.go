package sock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
)

// FindCgroup is the cgroup whose sockets are the node's (see kernel.Options), or why none
// is known. A cgroup that may end with the agent's pod is none: what is attached there
// goes with it, and serves nobody else.
func FindCgroup(options kernel.Options) (dir, limit string, err error) {
	if options.Cgroup != "" {
		return options.Cgroup, "", nil
	}
	root, err := cgroup.Reach()
	if err != nil {
		return "", "", err
	}
	machine, err := pins.InMachineNamespace()
	if err != nil {
		return "", "", err
	}
	if machine {
		return machineRoot(root)
	}
	own, err := cgroup.Own()
	if err != nil {
		return "", "", err
	}
	if own == "" {
		return "", "", errors.New("find the own cgroup: /proc/self/cgroup names none of version 2")
	}
	return nodesOf(root, own)
}

// nodesOf finds the cgroup of a node that isn't the machine, for an agent whose own
// cgroup is at a path of a hierarchy mounted at root.
func nodesOf(root, own string) (dir, limit string, err error) {
	dir = filepath.Join(root, own)
	if node, inPod := aboveOfPods(own); inPod {
		// The kubelet's pods have cgroups beside the agent's. Those of the node's other
		// processes are anywhere, but not above the root of the node's own namespace.
		if limit, err := belowRoot(root); err != nil || limit != "" {
			return root, "", err
		}
		dir = filepath.Join(root, node)
	}
	if limit, err = belowRoot(dir); err != nil || limit == "" { // the machine's own, which ends with no pod
		return dir, "", err
	}
	if limit, err = withoutChildren(dir); err != nil || limit != "" {
		return "", limit, err
	}
	return dir, "", nil
}

// aboveOfPods is the path above the kubelet's cgroup of all pods, if a path is below that:
// kubepods, kubepods.slice, or kubelet-kubepods.slice (pkg/kubelet/cm, --cgroup-root).
func aboveOfPods(own string) (string, bool) {
	parts := strings.Split(own, "/")
	i := slices.IndexFunc(parts, func(part string) bool { return strings.Contains(part, "kubepods") })
	if i < 0 {
		return "", false
	}
	return "/" + filepath.Join(parts[:i]...), true
}

// HasCgroup reports whether there is a cgroup for programs to be attached to. Where that
// can't be told, they should be: what is wrong is then said by what isn't there.
func HasCgroup(options kernel.Options) bool {
	dir, _, err := FindCgroup(options)
	return err != nil || dir != ""
}

// machineRoot finds the root of the machine's hierarchy among all mounts of cgroup v2: a
// container's own may come before the host's.
func machineRoot(reached string) (dir, limit string, err error) {
	mounts, err := cgroup.Mounts()
	if err != nil {
		return "", "", err
	}
	for _, dir := range append(mounts, reached) {
		if limit, err = belowRoot(dir); err != nil || limit == "" {
			return dir, limit, err
		}
	}
	return "", limit, nil
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

// CgroupUnsupported is what is told where no cgroup is known.
func CgroupUnsupported(limit string) kernel.Unsupported {
	return kernel.Unsupported{Feature: kernel.NodeSockets, Why: limit + ", so that no socket is connected to its endpoint directly, and all connections are translated at the interfaces: " +
		"mount the host's /sys/fs/cgroup (the component deploy/ebpf), or name the node's cgroup with --cgroup"}
}
