package userspace

import (
	"context"

	"github.com/fairway-net/fairway/internal/kernel"
)

// Read implements dataplane.Plane.
func (p *Plane) Read(ctx context.Context, what kernel.Query) (kernel.Reading, error) {
	return kernel.Readers{Objects: p.objects, Frontends: p.frontendCounts, Connections: connectionsTo}.Read(ctx, what)
}
