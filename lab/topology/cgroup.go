package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/internal/cgroup"
)

// Cgroup makes the cgroup of one of a lab's parts ("node1", "server") and
// returns its directory. What runs in it is ended by Remove.
func Cgroup(lab, part string) (string, error) {
	dir, err := FindCgroup(lab, part)
	if err != nil {
		return "", fmt.Errorf("create cgroup of %s: %w", part, err)
	}
	for range 10 {
		// The last lab that is removed may take the parent away in between.
		if err = os.MkdirAll(dir, 0o755); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("create cgroup of %s: %w", part, err)
	}
	return dir, nil
}

// FindCgroup is the directory of a cgroup of the lab, whether it exists or not.
func FindCgroup(lab, part string) (string, error) {
	root, err := cgroup.Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, cgroupParent, lab, part), nil
}

// Cgroup makes the node's cgroup and returns its directory.
func (n *Node) Cgroup() (string, error) { return Cgroup(n.lab.name, n.Name) }

// cgroupParent holds a directory for each lab.
const cgroupParent = "fairway"

// removeCgroups ends every process in the lab's cgroups and removes them.
func removeCgroups(lab string) error {
	root, err := cgroup.Root()
	if errors.Is(err, cgroup.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(root, cgroupParent, lab)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := leaveCgroup(root, lab); err != nil {
		return err
	}
	if err := killTree(dir); err != nil {
		return fmt.Errorf("end the processes of lab %s: %w", lab, err)
	}
	if err := removeTree(dir); err != nil {
		return fmt.Errorf("remove the cgroups of lab %s: %w", lab, err)
	}
	// The parent is shared: it goes with the last lab.
	err = os.Remove(filepath.Join(root, cgroupParent))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !isBusy(err) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}

// killTree kills every process in a cgroup and those below. The kernel's way
// (Linux 5.14) also catches processes that are forking just now; without it,
// it takes as many rounds as there are generations.
func killTree(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.kill"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("1")
		return errors.Join(err, f.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return killEach(dir)
}

// killEach kills the processes of a cgroup and those below one by one. Processes
// may start in there again, which the kernel's way may kill at once: it has them
// compare the count of such kills with their parent's cgroup.
func killEach(dir string) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			n, err := killListed(path)
			left += n
			return err
		})
		if err != nil || left == 0 {
			return err
		}
	}
	return errors.New("they do not die")
}

// killListed kills the processes that a file of process ids lists.
func killListed(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	ids := strings.Fields(string(text))
	for _, id := range ids {
		pid, err := strconv.Atoi(id)
		if err != nil || pid <= 0 { // 0: of another process namespace
			return 0, fmt.Errorf("process id %q in %s", id, file)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return len(ids), nil
}

// leaveCgroup takes the calling process out of the lab's cgroups, so that it
// doesn't end itself.
func leaveCgroup(root, lab string) error {
	own, err := cgroup.Own()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(own, "/"+cgroupParent+"/"+lab+"/") {
		return nil
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("leave the cgroup of lab %s: %w", lab, err)
	}
	return nil
}

// removeTree removes a cgroup from the leaves up. The kernel refuses while
// killed processes are still dying, so it waits.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
