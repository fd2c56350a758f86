package realcluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is a mount of cgroups: version 2, or a controller of version 1.
type hierarchy struct {
	At      string // "/sys/fs/cgroup/memory"
	Type    string // "cgroup" or "cgroup2"
	Options string // of a mount of it elsewhere: "memory", "none,name=systemd"
}

// hierarchies are those that the machine has mounted.
func hierarchies() (list []hierarchy, err error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		switch h := (hierarchy{At: fields[1], Type: fields[2]}); h.Type {
		case "cgroup2":
			list = append(list, h)
		case "cgroup":
			options := slices.DeleteFunc(strings.Split(fields[3], ","), func(o string) bool {
				return o == "rw" || o == "relatime" || strings.HasPrefix(o, "no") || strings.HasPrefix(o, "release_agent")
			})
			if h.Options = strings.Join(options, ","); strings.HasPrefix(h.Options, "name=") {
				h.Options = "none," + h.Options
			}
			list = append(list, h)
		}
	}
	return list, lines.Err()
}

// group is the node's directory in a hierarchy.
func (h hierarchy) group(cluster, node string) string {
	return filepath.Join(h.At, "fairway-"+cluster, node)
}

// setWeight has a cluster get its share of a busy machine's time: without it, all its
// processes together count as one of the machine's.
func setWeight(h hierarchy, dir string) error {
	for file, weight := range map[string]string{"cpu.shares": "65536", "cpu.weight": "10000"} {
		err := os.WriteFile(filepath.Join(dir, file), []byte(weight), 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // of another version, or another controller's
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeGroups makes the node's cgroup in every hierarchy.
func makeGroups(list []hierarchy, cluster, node string) error {
	for _, h := range list {
		dir := h.group(cluster, node)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the cgroup of %s: %w", node, err)
		}
		if err := setWeight(h, filepath.Dir(dir)); err != nil {
			return fmt.Errorf("make the cgroup of %s: %w", node, err)
		}
		// A cpuset of version 1 takes no process before it has these.
		for _, d := range []string{filepath.Dir(dir), dir} {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				above, err := os.ReadFile(filepath.Join(filepath.Dir(d), file))
				if h.Type != "cgroup" || errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(d, file), above, 0)
				}
				if err != nil {
					return fmt.Errorf("make the cgroup of %s: %w", node, err)
				}
			}
		}
	}
	return nil
}

// removeGroups removes a directory of every hierarchy whose processes are dying.
func removeGroups(list []hierarchy, dir func(hierarchy) string) error {
	var errs []error
	for _, h := range list {
		errs = append(errs, removeTree(dir(h)))
	}
	return errors.Join(errs...)
}

func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroups: %w", err)
	}
	deadline := time.Now().Add(waitTimeout)
	for _, d := range slices.Backward(dirs) { // a directory comes before what is in it
		for {
			err := unix.Rmdir(d)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup %s: %w", d, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
