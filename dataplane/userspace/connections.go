package userspace

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// connectionsTo lists the TCP connections that relays have accepted at some addresses,
// those of earlier relays included. Clients of UDP have no socket of their own.
func connectionsTo(ctx context.Context, addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
	const established, closeWait = 1, 8 // TCP_ESTABLISHED, TCP_CLOSE_WAIT (net/tcp_states.h)
	list := map[netip.Addr][]kernel.Connection{}
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
			to, _ := netip.AddrFromSlice(s.ID.Source)
			from, _ := netip.AddrFromSlice(s.ID.Destination)
			if to = to.Unmap(); addresses[to] {
				client := netip.AddrPortFrom(from.Unmap(), s.ID.DestinationPort)
				list[to] = append(list[to], kernel.Connection{Client: client, Port: s.ID.SourcePort, Proto: model.TCP})
			}
		}
	}
	return list, nil
}

// Connections implements dataplane.Plane: relays can't be moved, and serve to their end.
func (p *Plane) Connections() migrate.Connections { return nil }
