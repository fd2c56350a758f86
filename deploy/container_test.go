package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// container is what a kubelet would have a container runtime make: a process
// with its own view of the file system and few capabilities. Its network is the
// host's, which here is the namespace that the process is started in.
type container struct {
	Args         []string
	Root         string            // an empty directory, where its file system is put together
	Files        map[string]string // by path: Secrets and ConfigMaps
	Mounts       map[string]string // by path: host directories and files that it may write to
	Visible      []string          // host directories that it sees, read-only
	Privileged   bool
	Capabilities []string // if not privileged, without CAP_
}

// containerVariable holds the container that this process becomes.
const containerVariable = "FAIRWAY_TEST_CONTAINER"

// become turns this process, which has a mount namespace of its own, into the
// container's. It returns only if that fails.
func become(text string) error {
	runtime.LockOSThread() // capabilities are the thread's
	var c container
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := c.fileSystem(); err != nil {
		return fmt.Errorf("file system: %w", err)
	}
	if err := unix.Chroot(c.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if !c.Privileged {
		if err := c.drop(); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	environ := append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, containerVariable+"=") }), playFairway+"=1")
	return unix.Exec("/proc/self/exe", append([]string{"fairway"}, c.Args...), environ)
}

// fileSystem is the host's, with everything read-only but the mounts.
func (c *container) fileSystem() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("/", c.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	// What the image would not have is hidden: the host's own state.
	for _, dir := range []string{"run", "var/lib"} {
		if err := unix.Mount("tmpfs", filepath.Join(c.Root, dir), "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	for _, path := range c.Visible {
		if _, err := os.Stat(filepath.Join(c.Root, path)); err != nil {
			return err
		}
	}
	for path, text := range c.Files {
		path = filepath.Join(c.Root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a ConfigMap
			return err
		}
	}
	for path, host := range c.Mounts {
		if err := mountPoint(filepath.Join(c.Root, path), host); err != nil {
			return err
		}
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, c.Root, unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("make read-only: %w", err)
	}
	for path, host := range c.Mounts {
		if err := unix.Mount(host, filepath.Join(c.Root, path), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", host, err)
		}
		// Where the host's file is on a mount that has become read-only.
		writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, filepath.Join(c.Root, path), 0, writable); err != nil {
			return fmt.Errorf("make %s writable: %w", path, err)
		}
	}
	if !c.Privileged {
		return nil
	}
	writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, filepath.Join(c.Root, "proc"), 0, writable)
}

// mountPoint makes what a host's file or directory can be mounted on.
func mountPoint(path, host string) error {
	info, err := os.Stat(host)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o600)
}

// capabilityNumbers are those that manifests here may ask for.
var capabilityNumbers = map[string]uintptr{
	"NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"SYS_RESOURCE": unix.CAP_SYS_RESOURCE, "BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON, "SYS_ADMIN": unix.CAP_SYS_ADMIN,
}

// drop leaves the process, and all that it starts, nothing but the container's
// capabilities, and no way to others.
func (c *container) drop() error {
	var keep []uintptr
	for _, name := range c.Capabilities {
		number, ok := capabilityNumbers[name]
		if !ok {
			return fmt.Errorf("capability %q is not known here", name)
		}
		keep = append(keep, number)
	}
	for number := uintptr(0); number <= unix.CAP_LAST_CAP; number++ {
		if slices.Contains(keep, number) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // the kernel doesn't know it
			return err
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
