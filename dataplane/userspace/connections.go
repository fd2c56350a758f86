package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// countConnections counts the TCP connections that relays have accepted at some addresses,
// those of earlier relays included. Clients of UDP have no socket of their own.
func countConnections(ctx context.Context, addresses map[netip.Addr]bool) (map[netip.Addr]int, error) {
	const established, closeWait = 1, 8 // TCP_ESTABLISHED, TCP_CLOSE_WAIT (net/tcp_states.h)
	count := map[netip.Addr]int{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		for _, s := range sockets {
			if s.State != established && s.State != closeWait {
				continue
			}
			if a, ok := netip.AddrFromSlice(s.ID.Source); ok && addresses[a.Unmap()] {
				count[a.Unmap()]++
			}
		}
	}
	return count, nil
}
