package ebpf

import (
	"context"
	"net/netip"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/dataplane/ebpf/packet"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{
		Objects: p.objects, Compare: p.check,
		Frontends: func(ctx context.Context) ([]kernel.Count, error) { return maps.FrontendCounts(ctx, p.dir) },
		Backends: func(ctx context.Context, of *model.Table) ([]kernel.BackendCount, error) {
			return maps.BackendCounts(ctx, p.dir, of)
		},
		Drops: func(ctx context.Context) ([]kernel.DropStats, error) { return packet.DropStats(ctx, p.dir) },
		Connections: func(ctx context.Context, to map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
			return packet.ConnectionsTo(ctx, p.dir, to)
		},
		Strays:  func(ctx context.Context) (*kernel.Strays, error) { return packet.Strays(ctx, p.dir) },
		Drivers: p.packets.Drivers,
		Maps:    func(ctx context.Context) ([]kernel.MapUsage, error) { return maps.Usage(ctx, p.dir) },
	}.Read(ctx, what)
}
