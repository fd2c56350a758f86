package planes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
)

// cgroupHooks are where a plane may have programs that sockets meet.
var cgroupHooks = []ebpf.AttachType{
	ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect, ebpf.AttachCGroupUDP4Sendmsg, ebpf.AttachCGroupUDP6Sendmsg,
	ebpf.AttachCGroupUDP4Recvmsg, ebpf.AttachCGroupUDP6Recvmsg, ebpf.AttachCgroupInet4GetPeername, ebpf.AttachCgroupInet6GetPeername,
	ebpf.AttachCgroupInetSockRelease, ebpf.AttachCGroupInetSockCreate,
}

// readBPF lists what eBPF programs run for the node, and what is pinned for it.
func (s *Topology) readBPF(shot snapshot) error {
	var list []string
	if s.cgroup != "" {
		dir, err := os.Open(s.cgroup)
		if err != nil {
			return err
		}
		defer dir.Close()
		for _, hook := range cgroupHooks {
			n, err := countPrograms(int(dir.Fd()), hook)
			if err != nil {
				return err
			}
			list = append(list, fmt.Sprintf("cgroup %s: %d programs", hook, n))
		}
	}
	interfaces, err := s.interfacePrograms()
	if err != nil {
		return err
	}
	pins, err := pinsOf(s.node.NS)
	if err != nil {
		return err
	}
	shot["bpf"] = strings.Join(slices.Concat(list, interfaces, pins), "\n")
	return nil
}

// interfacePrograms counts the programs at the interfaces that netlink doesn't
// show (tcx).
func (s *Topology) interfacePrograms() (list []string, err error) {
	h, err := s.node.NS.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := kernel.List(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	err = s.node.Do(func() error {
		for _, l := range links {
			for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				n, err := countPrograms(l.Attrs().Index, hook)
				if err != nil {
					return err
				}
				if n > 0 {
					list = append(list, fmt.Sprintf("%s %s: %d programs", l.Attrs().Name, hook, n))
				}
			}
		}
		return nil
	})
	return list, err
}

// countPrograms counts the programs at a cgroup or interface; none where the
// kernel doesn't know the hook.
func countPrograms(target int, hook ebpf.AttachType) (int, error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: target, Attach: hook})
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list programs at %s: %w", hook, err)
	}
	return len(found.Programs), nil
}

// pinsOf lists what a plane has pinned for a namespace.
func pinsOf(ns *netns.NS) (list []string, err error) {
	var cookie uint64
	err = ns.Do(func() (err error) {
		cookie, err = netns.Cookie()
		return err
	})
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(filepath.Join("/sys/fs/bpf/fairway", fmt.Sprint(cookie)), func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		list = append(list, path)
		return err
	})
	return list, err
}
