// Package cgroup finds the hierarchy of control groups, version 2.
package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/fairway-net/fairway/internal/kernel"
)

// ErrNone says that no hierarchy is mounted.
var ErrNone error = &kernel.MissingError{What: "a mounted cgroup v2 hierarchy", Since: "4.5"}

// Root finds where cgroup v2 is mounted: /sys/fs/cgroup on most machines,
// /sys/fs/cgroup/unified where version 1 is in use beside it.
// The error is [ErrNone] if it isn't mounted.
func Root() (string, error) {
	roots, err := Mounts()
	if err != nil {
		return "", err
	}
	if len(roots) == 0 {
		return "", ErrNone
	}
	return roots[0], nil
}

// Mounts are all directories where cgroup v2 is mounted. In a container the first may be
// its own cgroup, and another one the host's.
func Mounts() (roots []string, err error) {
	mounts, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("find the cgroup mount: %w", err)
	}
	defer mounts.Close()
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 2 && f[2] == "cgroup2" {
			roots = append(roots, f[1])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find the cgroup mount: %w", err)
	}
	return roots, nil
}

// Own is the path of the calling process's control group from the root of the
// hierarchy, "/" for the root itself; "" if it is in none of version 2.
func Own() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find the own cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", nil
}
