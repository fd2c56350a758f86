package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/lab/topology"
)

// usage is what the processes of a cgroup use: a process with all its children,
// those that have ended included.
type usage struct{ dir string }

func newUsage(name string) (*usage, error) {
	dir, err := topology.Cgroup(labName, name)
	if err != nil {
		return nil, err
	}
	return &usage{dir: dir}, nil
}

// cpu is the processor time used so far, in user space and in the kernel.
func (u *usage) cpu() (time.Duration, error) {
	data, err := os.ReadFile(filepath.Join(u.dir, "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if text, found := strings.CutPrefix(line, "usage_usec "); found {
			us, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read processor time: %w", err)
			}
			return time.Duration(us) * time.Microsecond, nil
		}
	}
	return 0, errors.New("read processor time: cpu.stat doesn't say")
}

// processes are the ids of those that live.
func (u *usage) processes() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(u.dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// memory is what the processes have resident: in all, in proportion where it is
// shared with others (PSS), and what is no memory of their own but files; and the
// most that they ever had.
type memory struct{ rss, pss, file, highest int64 }

func (m memory) String() string {
	return fmt.Sprintf("%d MB (%d MB of it the executable; PSS %d MB; %d MB at its highest)", m.rss>>20, m.file>>20, m.pss>>20, m.highest>>20)
}

func (u *usage) memory() (memory, error) {
	ids, err := u.processes()
	if err != nil {
		return memory{}, err
	}
	var sum memory
	for _, id := range ids {
		var data []byte
		for _, file := range []string{"/smaps_rollup", "/status"} {
			text, err := os.ReadFile("/proc/" + id + file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // one that has just ended has none
				return memory{}, fmt.Errorf("read memory of process %s: %w", id, err)
			}
			data = append(data, text...)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			into := map[string]*int64{"Rss:": &sum.rss, "Pss:": &sum.pss, "Anonymous:": &sum.file, "VmHWM:": &sum.highest}
			if len(f) < 3 || into[f[0]] == nil {
				continue
			}
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return memory{}, fmt.Errorf("read memory of process %s: %w", id, err)
			}
			*into[f[0]] += kb << 10
		}
	}
	sum.file = sum.rss - sum.file
	return sum, nil
}

// looks is how often open files are counted, and lookPause the time between.
const (
	looks     = 20
	lookPause = 100 * time.Millisecond
)

// files counts the file descriptors that stay open: the fewest of several looks,
// since a child that runs at the moment has some of its own, and pipes to it: an
// agent in mode iptables has 13 between its calls of iptables-restore, and 16 to 22
// with the child's during one.
func (u *usage) files(ctx context.Context) (least int, err error) {
	for i := range looks {
		now, err := u.openFiles()
		if err != nil {
			return 0, err
		}
		if i == 0 || now < least {
			least = now
		}
		pause(ctx, lookPause)
	}
	return least, nil
}

func (u *usage) openFiles() (int, error) {
	ids, err := u.processes()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, id := range ids {
		open, err := os.ReadDir("/proc/" + id + "/fd")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("count file descriptors of process %s: %w", id, err)
		}
		n += len(open)
	}
	return n, nil
}
