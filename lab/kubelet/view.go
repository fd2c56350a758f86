package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// view is what a container finds in the host's file system that nobody else does:
// its volumes, by mounts in a mount namespace of its own. Folders on the way that
// the host lacks are made in a copy of the folder above them: a tmpfs into which
// everything of that folder is mounted. The host's file system stays as it is.
type view struct {
	mounts  []mount
	folder  string // where the container starts; made if there is none; "" if it doesn't say
	scratch string // a folder to prepare copies in, on the host

	copied []string // folders that are copies, or were made in one
}

// mount is a volume, or a part of one, and where a container finds it.
type mount struct {
	path, from string // absolute paths
	readOnly   bool
}

// apply changes what the calling thread sees: it must have a mount namespace of its
// own, and stay locked for good.
func (v *view) apply() error {
	mounts := slices.SortedStableFunc(slices.Values(v.mounts), func(a, b mount) int { return len(a.path) - len(b.path) })
	sources := make([]int, len(mounts)) // opened before a mount may hide them
	for i, m := range mounts {
		fd, err := unix.Open(m.from, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open the volume for %s: %w", m.path, err)
		}
		defer unix.Close(fd)
		sources[i] = fd
	}
	for i, m := range mounts {
		if err := v.mount(m, fmt.Sprintf("/proc/thread-self/fd/%d", sources[i])); err != nil {
			return fmt.Errorf("mount a volume on %s: %w", m.path, err)
		}
	}
	if v.folder == "" {
		return nil
	}
	if err := v.make(v.folder, true); err != nil {
		return fmt.Errorf("make the working directory %s: %w", v.folder, err)
	}
	return nil
}

func (v *view) mount(m mount, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := v.make(m.path, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(source, m.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !m.readOnly {
		return nil
	}
	return unix.Mount("", m.path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// make sees to it that there is a folder, or a file, at a path.
func (v *view) make(path string, isDir bool) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := v.make(parent, true); err != nil {
		return err
	}
	parent, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return err
	}
	if !v.own(parent) {
		if err := v.copy(parent); err != nil {
			return fmt.Errorf("copy %s: %w", parent, err)
		}
		v.copied = append(v.copied, parent)
	}
	if !isDir {
		return os.WriteFile(path, nil, 0o644)
	}
	v.copied = append(v.copied, filepath.Join(parent, filepath.Base(path)))
	return os.Mkdir(path, 0o755)
}

// own says whether what is made in a folder is not the host's: it is a copy, or
// belongs to a volume.
func (v *view) own(folder string) bool {
	return slices.Contains(v.copied, folder) || slices.ContainsFunc(v.mounts, func(m mount) bool {
		return folder == m.path || strings.HasPrefix(folder, m.path+"/")
	})
}

// copy puts a folder with the same things in it in a folder's place.
func (v *view) copy(folder string) error {
	if err := os.MkdirAll(v.scratch, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", v.scratch, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	if err := unix.Mount("", v.scratch, "", unix.MS_UNBINDABLE, ""); err != nil {
		return err // it would become a part of itself
	}
	for _, e := range entries {
		err := copyEntry(filepath.Join(folder, e.Name()), filepath.Join(v.scratch, e.Name()), e)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone since
			return err
		}
	}
	if folder != "/" {
		return unix.Mount(v.scratch, folder, "", unix.MS_MOVE, "")
	}
	if err := unix.Chroot(v.scratch); err != nil {
		return err
	}
	return unix.Chdir("/")
}

func copyEntry(from, to string, e fs.DirEntry) error {
	if e.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	make := func() error { return os.WriteFile(to, nil, 0o644) }
	if e.IsDir() {
		make = func() error { return os.Mkdir(to, 0o755) }
	}
	if err := make(); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}
