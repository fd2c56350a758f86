// Package netns makes Linux network namespaces, and runs functions and child
// processes inside them. Named namespaces are bind-mounted in /run/netns, where
// `ip netns` sees them; the `ip` command itself is not needed.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where named namespaces are mounted (iproute2's NETNS_RUN_DIR).
const Dir = "/run/netns"

// NS is an open network namespace. It lives as long as something refers to it:
// its name in Dir, this handle, a process or a socket.
type NS struct {
	name   string
	handle vnetns.NsHandle
}

// Create makes a namespace and gives it a name in Dir. The caller's thread
// stays where it is. A name that is taken is an error (fs.ErrExist).
func Create(name string) (*NS, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	if err := shareDir(); err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	path := filepath.Join(Dir, name)
	mountPoint, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	if err := mountPoint.Close(); err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	ns, err := unshare(func() error { return unix.Mount(threadPath, path, "", unix.MS_BIND, "") })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create network namespace %s: %w", name, err), os.Remove(path))
	}
	ns.name = name
	return ns, nil
}

// shareDir makes Dir a mount of its own that is shared, as iproute2 does for the first namespace
// that it makes: it would hide those that were there before.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(Dir) // iproute2 locks it, too
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		if err = unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", Dir, err)
	}
	return nil
}

// Anonymous makes a namespace without a name: it is gone when it is closed and
// nothing else lives in it.
func Anonymous() (*NS, error) {
	ns, err := unshare(func() error { return nil })
	if err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	return ns, nil
}

// Open opens a namespace by its name in Dir.
func Open(name string) (*NS, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	ns, err := openPath(filepath.Join(Dir, name))
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	ns.name = name
	return ns, nil
}

// OfProcess opens the namespace that a process lives in.
func OfProcess(pid int) (*NS, error) { return OfPath(fmt.Sprintf("/proc/%d/ns/net", pid)) }

// OfPath opens the namespace that a file stands for, such as /proc/PID/ns/net.
func OfPath(path string) (*NS, error) {
	ns, err := openPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return ns, nil
}

// Current opens the namespace of the calling thread.
func Current() (*NS, error) {
	ns, err := openPath(threadPath)
	if err != nil {
		return nil, fmt.Errorf("open the current network namespace: %w", err)
	}
	return ns, nil
}

// Names lists the named namespaces whose name starts with prefix.
func Names(prefix string) ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Remove takes a namespace's name away, and with it the namespace unless
// something still uses it. One that doesn't exist is no error, and neither is a
// file in Dir that a reboot left without a namespace behind it.
func Remove(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("remove network namespace: %w", err)
	}
	path := filepath.Join(Dir, name)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

// Name is the name in Dir, or "" for an anonymous or current namespace.
func (n *NS) Name() string { return n.name }

// Fd is the open file descriptor, for netlink attributes that name a namespace
// (IFLA_NET_NS_FD). It stays the NS's own.
func (n *NS) Fd() int { return int(n.handle) }

// ID tells namespaces apart: the device and inode that the kernel shows for it.
func (n *NS) ID() string { return n.handle.UniqueId() }

// Netlink opens a netlink handle whose sockets live in the namespace; without
// families it serves all that the netlink package knows. The caller closes it.
func (n *NS) Netlink(families ...int) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(n.handle, families...)
	if err != nil {
		return nil, fmt.Errorf("open netlink in network namespace %s: %w", n, err)
	}
	return h, nil
}

// Close gives up the handle; a named namespace lives on. Closing again is no
// error.
func (n *NS) Close() error {
	if !n.handle.IsOpen() {
		return nil
	}
	if err := n.handle.Close(); err != nil {
		return fmt.Errorf("close network namespace %s: %w", n, err)
	}
	return nil
}

// Remove closes the namespace and takes its name away, if it has one.
func (n *NS) Remove() error {
	if n.name == "" {
		return n.Close()
	}
	return errors.Join(n.Close(), Remove(n.name))
}

// String names the namespace in errors.
func (n *NS) String() string {
	if n.name != "" {
		return n.name
	}
	return "(anonymous)"
}

func openPath(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &NS{handle: vnetns.NsHandle(fd)}, nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > unix.NAME_MAX || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("name %q: must be a file name of 1 to %d bytes", name, unix.NAME_MAX)
	}
	return nil
}
