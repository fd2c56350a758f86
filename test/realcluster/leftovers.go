package realcluster

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// The places of a node where programs of ebpf mode, or of announced addresses, are attached.
var (
	interfaceHooks = map[string]ebpf.AttachType{"tcx ingress": ebpf.AttachTCXIngress, "tcx egress": ebpf.AttachTCXEgress}
	cgroupHooks    = map[string]ebpf.AttachType{
		"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
		"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
		"recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
		"getpeername4": ebpf.AttachCgroupInet4GetPeername, "getpeername6": ebpf.AttachCgroupInet6GetPeername,
		"release": ebpf.AttachCgroupInetSockRelease,
	}
)

// Leftovers lists what a node has of Fairway in its kernel and its file systems.
func (n *Node) Leftovers() (string, error) {
	named, err := n.Run("sh", "-c", `nft list tables | grep fairway
ls /sys/fs/bpf | grep fairway
ip -o link | grep -i fairway
ip rule | grep -vE '^(0|32766|32767):'
true`)
	inKernel, more := n.attached()
	lines := append(strings.Split(named, "\n"), inKernel...)
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return l == "" }), "\n"), errors.Join(err, more)
}

// attached lists the programs at the node's interfaces and cgroups; nobody but Fairway has any there.
func (n *Node) attached() (list []string, err error) {
	query := func(hooks map[string]ebpf.AttachType, target int, at string) error {
		for name, hook := range hooks {
			got, err := link.QueryPrograms(link.QueryOptions{Target: target, Attach: hook})
			if err != nil {
				return fmt.Errorf("query %s of %s: %w", name, at, err)
			}
			if len(got.Programs) > 0 {
				list = append(list, fmt.Sprintf("%d programs at %s of %s", len(got.Programs), name, at))
			}
		}
		return nil
	}
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		for _, l := range links {
			if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
				list = append(list, "a program at XDP of "+l.Attrs().Name)
			}
			if err := query(interfaceHooks, l.Attrs().Index, l.Attrs().Name); err != nil {
				return err
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, err := netlink.FilterList(l, parent)
				if err != nil {
					return fmt.Errorf("list filters of %s: %w", l.Attrs().Name, err)
				}
				for _, f := range filters {
					list = append(list, fmt.Sprintf("a filter %s at %s", f.Type(), l.Attrs().Name))
				}
			}
		}
		return nil
	})
	for i, h := range n.cluster.hierarchies {
		if h.Type != "cgroup2" || err != nil {
			continue
		}
		var dir *os.File
		if dir, err = os.Open(n.groups()[i]); err == nil {
			err = errors.Join(query(cgroupHooks, int(dir.Fd()), "the node's cgroup"), dir.Close())
		}
	}
	return list, err
}
