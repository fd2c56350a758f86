package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/lab/topology"
)

// precedence is the nice value of the lab's processes: they stand for many machines,
// and others' work on this one is none of theirs. A router that has no time for
// 150 ms takes nodes for dead.
const precedence = "-15"

// takePrecedence gives it to this process and to all of a lab. The kernel groups
// processes by session, and shares time among the groups (sched(7), autogroup).
func takePrecedence(name string) error {
	dir, err := topology.FindCgroup(name, "")
	if err != nil {
		return err
	}
	ids := []string{"self"}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return ignoreGone(err)
		}
		list, err := os.ReadFile(path)
		ids = append(ids, strings.Fields(string(list))...)
		return ignoreGone(err)
	})
	if err != nil {
		return fmt.Errorf("take precedence: %w", err)
	}
	for _, id := range ids {
		if err := ignoreGone(os.WriteFile("/proc/"+id+"/autogroup", []byte(precedence), 0o644)); err != nil {
			return fmt.Errorf("take precedence: %w", err)
		}
	}
	return nil
}

// ignoreGone takes no notice of processes and cgroups that end meanwhile, nor of
// kernels without such groups.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
