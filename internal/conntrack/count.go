package conntrack

import (
	"context"
	"net/netip"

	"github.com/fairway-net/fairway/internal/kernel"
)

// ConnectionsTo lists the flows that were sent to some addresses, and that something may
// still be said over.
func ConnectionsTo(ctx context.Context, addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
	list := map[netip.Addr][]kernel.Connection{}
	err := Flows(ctx, func(f *Flow) {
		if a := f.Frontend.Addr(); addresses[a] && !f.Ended() {
			list[a] = append(list[a], kernel.Connection{Client: f.Client, Port: f.Frontend.Port(), Proto: f.Proto})
		}
	})
	return list, err
}
