package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/lab/fault"
	"github.com/fairway-net/fairway/lab/kubelet"
	"github.com/fairway-net/fairway/lab/topology"
)

// Exec becomes a command inside the network namespace of a lab's host: a node,
// the client, the underlay, or a pod by its name or NAMESPACE/NAME. Signals, the
// terminal and the exit code are then the command's own. It returns only errors.
func Exec(name, target string, argv []string) error {
	if err := checkPrivileges(); err != nil {
		return err
	}
	ns, err := open(name, target)
	if err != nil {
		return err
	}
	faults, err := Faults(context.Background(), name)
	if err == nil && slices.Contains(faults, kubelet.Fault{Node: target, Kind: fault.Power}) { // a crashed lab tells none
		return fmt.Errorf("node %s has no power: fairway lab mend --name %s", target, name)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// execve takes the calling thread's namespace along, for all of the process.
	runtime.LockOSThread()
	if err := unix.Setns(ns.Fd(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", target, err)
	}
	if err := netns.SetHostname(target[strings.LastIndexByte(target, '/')+1:]); err != nil {
		return err
	}
	if err := useClusterDNS(name, target); err != nil {
		return err
	}
	if err := joinCgroup(name, ns); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, argv, os.Environ()))
}

// joinCgroup has this process, and what it executes, be one of the node that a
// namespace is, or whose pod's it is. The client and the underlay have no node.
func joinCgroup(name string, ns *netns.NS) error {
	dir, err := topology.NodeCgroup(name, ns)
	if dir == "" || err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join the node's cgroup: %w", err)
	}
	return nil
}

// open finds the namespace that a target means.
func open(name, target string) (*netns.NS, error) {
	if _, err := Load(name); err != nil {
		return nil, err
	}
	namespace, pod, qualified := strings.Cut(target, "/")
	var candidates []string
	if qualified {
		candidates = []string{topology.PodNamespace(name, kubelet.PodName(namespace, pod))}
	} else {
		candidates = []string{
			topology.HostNamespace(name, target),
			topology.PodNamespace(name, kubelet.PodName("default", target)),
		}
	}
	for _, c := range candidates {
		ns, err := netns.Open(c)
		if !errors.Is(err, fs.ErrNotExist) {
			return ns, err
		}
	}
	return nil, fmt.Errorf("lab %q has no %q: give a node, client, underlay, a pod of the namespace default, or NAMESPACE/POD", name, target)
}
