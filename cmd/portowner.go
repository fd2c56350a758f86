package cmd

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// portOwner names the process that has a TCP or UDP port at an address of this network
// namespace, as "nginx (process 1234)". It is "" if no such process is seen: one
// may be another user's, or in another PID namespace.
func portOwner(network string, at netip.AddrPort) string {
	for inode := range socketsAt(network, at) {
		if name := socketHolder(inode); name != "" {
			return name
		}
	}
	return ""
}

// socketsAt are the inodes of the sockets that are in the way at an address.
func socketsAt(network string, at netip.AddrPort) map[uint32]bool {
	list, found := netlink.SocketDiagTCP, map[uint32]bool{}
	if strings.HasPrefix(network, "udp") {
		list = netlink.SocketDiagUDP
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := list(family)
		if err != nil {
			continue // the other family may tell
		}
		for _, s := range all {
			if s == nil || s.ID.SourcePort != at.Port() || s.ID.DestinationPort != 0 {
				continue
			}
			addr, _ := netip.AddrFromSlice(s.ID.Source)
			if addr = addr.Unmap(); addr == at.Addr().Unmap() || addr.IsUnspecified() || at.Addr().IsUnspecified() {
				found[s.INode] = true
			}
		}
	}
	return found
}

// socketHolder is the process that has a socket open.
func socketHolder(inode uint32) string {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return ""
	}
	socket := fmt.Sprintf("socket:[%d]", inode)
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		open, err := filepath.Glob(filepath.Join("/proc", p.Name(), "fd", "*"))
		if err != nil {
			continue
		}
		if slices.ContainsFunc(open, func(fd string) bool {
			target, err := os.Readlink(fd)
			return err == nil && target == socket
		}) {
			name, err := os.ReadFile(filepath.Join("/proc", p.Name(), "comm"))
			if err != nil {
				return "process " + p.Name()
			}
			return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), p.Name())
		}
	}
	return ""
}
