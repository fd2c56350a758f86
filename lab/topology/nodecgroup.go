package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/netns"
)

// NodeCgroup finds the cgroup of the node of a lab that a network namespace is,
// or whose pod's it is: the one with a process in there, be it an agent or a
// pod's. It is "" if there is none, or no cgroup v2.
func NodeCgroup(lab string, ns *netns.NS) (string, error) {
	dir, err := FindCgroup(lab, "")
	if errors.Is(err, cgroup.ErrNone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var want unix.Stat_t
	if err := unix.Fstat(ns.Fd(), &want); err != nil {
		return "", fmt.Errorf("identify network namespace %s: %w", ns, err)
	}
	for _, part := range []string{"agent", "pods/*"} {
		lists, err := filepath.Glob(filepath.Join(dir, "*", part, "cgroup.procs"))
		if err != nil {
			return "", err
		}
		for _, list := range lists {
			if has, err := hasProcess(list, want); has || err != nil {
				node, _, _ := strings.Cut(strings.TrimPrefix(list, dir+"/"), "/")
				return filepath.Join(dir, node), err
			}
		}
	}
	return "", nil
}

// hasProcess reports whether a process of a list is in a network namespace.
// Processes may end meanwhile, and so may their cgroup.
func hasProcess(list string, want unix.Stat_t) (bool, error) {
	pids, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list processes of a cgroup: %w", err)
	}
	for pid := range strings.Lines(string(pids)) {
		var is unix.Stat_t
		err := unix.Stat(filepath.Join("/proc", strings.TrimSpace(pid), "ns/net"), &is)
		if err == nil && is.Ino == want.Ino && is.Dev == want.Dev {
			return true, nil
		}
	}
	return false, nil
}
