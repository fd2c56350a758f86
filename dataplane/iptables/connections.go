package iptables

import (
	"github.com/fairway-net/fairway/dataplane/migrate"
)

// Connections implements dataplane.Plane. It returns nil, as there is nothing to move when
// the mode changes: conntrack translates all connections of this plane.
func (p *Plane) Connections() migrate.Connections { return nil }
