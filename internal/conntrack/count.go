package conntrack

import (
	"context"
	"net/netip"
)

// CountTo counts the flows that were sent to some addresses, and that something may still
// be said over.
func CountTo(ctx context.Context, addresses map[netip.Addr]bool) (map[netip.Addr]int, error) {
	count := map[netip.Addr]int{}
	err := Flows(ctx, func(f *Flow) {
		if a := f.Frontend.Addr(); addresses[a] && !f.Ended() {
			count[a]++
		}
	})
	return count, err
}
