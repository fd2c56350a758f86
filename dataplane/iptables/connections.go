package iptables

import (
	"github.com/fairway-net/fairway/dataplane/migrate"
)

// Connections implements dataplane.Plane: conntrack has them all.
func (p *Plane) Connections() migrate.Connections { return nil }
