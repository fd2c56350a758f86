package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Use is what the processes of a cgroup and those below use.
type Use struct {
	CPU    time.Duration // since the cgroup was made
	Memory int64         // bytes, resident now
}

// CgroupUse reads it. A cgroup that isn't there uses nothing.
func CgroupUse(dir string) (Use, error) {
	var u Use
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err != nil {
		return u, fmt.Errorf("read the use of a cgroup: %w", err)
	}
	fields := strings.Fields(string(stat)) // pairs of a name and a number
	for i := 0; i+1 < len(fields); i += 2 {
		if micros, err := strconv.ParseInt(fields[i+1], 10, 64); fields[i] == "usage_usec" && err == nil {
			u.CPU = time.Duration(micros) * time.Microsecond
		}
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return ignoreGone(err)
		}
		ids, err := os.ReadFile(path)
		for _, id := range strings.Fields(string(ids)) {
			u.Memory += resident(id)
		}
		return ignoreGone(err)
	})
	if err != nil {
		return u, fmt.Errorf("read the use of a cgroup: %w", err)
	}
	return u, nil
}

// ignoreGone takes no notice of cgroups that are removed meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// resident is a process's resident memory (proc_pid_statm(5)); 0 if it has ended.
func resident(pid string) int64 {
	statm, err := os.ReadFile(filepath.Join("/proc", pid, "statm"))
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
