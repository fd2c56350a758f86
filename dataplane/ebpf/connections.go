package ebpf

import (
	"context"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
)

// Connections implements dataplane.Plane.
func (p *Plane) Connections() migrate.Connections {
	return connections{p}
}

// connections are a plane's: see migrate.Connections.
type connections struct{ p *Plane }

// Leave implements migrate.Connections. The maps stay as large as they are.
func (c connections) Leave(context.Context) ([]migrate.Source, error) {
	c.p.opening.Lock()
	defer c.p.opening.Unlock()
	c.p.endGrowing()
	return c.p.packets.Leave(c.p.dir)
}

// Import implements migrate.Connections.
func (c connections) Import(_ context.Context, flows []conntrack.Flow) error {
	return c.p.packets.Import(flows)
}
