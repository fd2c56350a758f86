package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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
	var sum memory
	own := int64(0)
	err := u.sum(map[string]*int64{"Rss:": &sum.rss, "Pss:": &sum.pss, "Anonymous:": &own, "VmHWM:": &sum.highest}, "smaps_rollup", "status")
	sum.file = sum.rss - own
	return sum, err
}

// resident is what the kernel says of resident memory without a walk through it: the
// most ever, and what is no file now.
type resident struct{ highest, anonymous int64 }

func (u *usage) resident() (resident, error) {
	var sum resident
	err := u.sum(map[string]*int64{"VmHWM:": &sum.highest, "RssAnon:": &sum.anonymous}, "status")
	return sum, err
}

// sum adds up what files in /proc say of each process, by the name of the line; in bytes.
func (u *usage) sum(into map[string]*int64, files ...string) error {
	ids, err := u.processes()
	if err != nil {
		return err
	}
	for _, id := range withOwnMemory(ids) {
		var data []byte
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join("/proc", id, file))
			// One that has just ended has none, or fails with ESRCH.
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("read memory of process %s: %w", id, err)
			}
			data = append(data, text...)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) < 3 || into[f[0]] == nil {
				continue
			}
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return fmt.Errorf("read memory of process %s: %w", id, err)
			}
			*into[f[0]] += kb << 10
		}
	}
	return nil
}

// kcmpVM is KCMP_VM of linux/kcmp.h: whether two processes have one memory.
const kcmpVM = 1

// withOwnMemory leaves out processes whose memory another one has counted: a child is
// made with its parent's (vfork(2)), and gets its own when it executes its program.
func withOwnMemory(ids []string) []string {
	var own []string
	for _, id := range ids {
		if !slices.ContainsFunc(own, func(other string) bool { return sameMemory(id, other) }) {
			own = append(own, id)
		}
	}
	return own
}

// sameMemory asks the kernel (kcmp(2)). Processes that have ended share nothing.
func sameMemory(a, b string) bool {
	first, errFirst := strconv.Atoi(a)
	second, errSecond := strconv.Atoi(b)
	if errFirst != nil || errSecond != nil {
		return false
	}
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(first), uintptr(second), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
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
