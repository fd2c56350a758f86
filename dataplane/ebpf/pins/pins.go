// Package pins manages what outlives the agent: maps, programs and links below
// /sys/fs/bpf/fairway, in a directory for each node.
package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/bpffs"
	"github.com/fairway-net/fairway/internal/kernel"
)

// InterfaceLinks is the directory of the links by which programs are at interfaces.
const InterfaceLinks = "links"

// DriverLinks is the directory of the links by which a program is in drivers of interfaces.
const DriverLinks = "drivers"

// Layout is the directory of the maps. A map whose elements change gets another
// name (bpf/maps.h): programs of an earlier version go on with the old map until
// they are replaced.
const Layout = "v1"

// nodesDir is where everything is pinned, in a directory for each node: several
// nodes may share a kernel. What tells them apart is the network namespace, by
// its cookie, which is never used again, or, on kernels that have none, by its
// inode.
var nodesDir = filepath.Join(bpffs.Dir, "fairway")

// MakeDir makes a node's directory. Another node that is removed may take away,
// in between, what they share.
func MakeDir(dir string) (err error) {
	for range 10 {
		if err = os.MkdirAll(dir, 0o700); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// RemoveDead removes what nodes have left that are no more: the cgroups and interfaces
// at which their programs were are gone, which detaches programs, if not at once. Planes
// begin with it, too; this network namespace's node is never taken for dead.
func RemoveDead() error {
	own, err := NodeDir()
	if err != nil && !kernel.IsMissing(err) {
		return err
	}
	nodes, err := os.ReadDir(nodesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pinned maps: %w", err)
	}
	for _, n := range nodes {
		dir := filepath.Join(nodesDir, n.Name())
		if dir == own {
			continue
		}
		dead, err := isDead(dir)
		if err != nil {
			return err
		}
		if dead {
			if err := Remove(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func isDead(dir string) (bool, error) {
	sockets, err := Links(dir, "*-*")
	if err != nil {
		return false, err
	}
	interfaces, err := Links(filepath.Join(dir, InterfaceLinks), "*-*")
	if err != nil {
		return false, err
	}
	// A node has its loopback interface as long as it is, so one look mostly is enough.
	for _, pin := range append(interfaces, sockets...) {
		if alive, err := leadsSomewhere(pin); err != nil || alive {
			return false, err
		}
		if _, err := os.Lstat(pin); err != nil {
			return false, nil // somebody is at work there
		}
	}
	return len(interfaces)+len(sockets) > 0, nil
}

// Remove removes a node's directory with all pins.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pinned maps: %w", err)
	}
	err := os.Remove(filepath.Dir(dir)) // shared with other nodes
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove pinned maps: %w", err)
	}
	return nil
}

// OpenIfThere opens a pinned map; nil if there is none.
func OpenIfThere(dir, name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, Layout, name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open map %s: %w", name, err)
	}
	return m, nil
}
