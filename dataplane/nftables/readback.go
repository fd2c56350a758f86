package nftables

import (
	"context"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
)

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Compare: p.check, Frontends: p.frontendCounts, Packets: p.packetCounts, Connections: conntrack.ConnectionsTo}.Read(ctx, what)
}
