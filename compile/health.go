package compile

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// HealthCheck is what a load balancer asks a node about a Service: whether the
// node has endpoints of its own for it (externalTrafficPolicy Local,
// spec.healthCheckNodePort).
type HealthCheck struct {
	Service types.NamespacedName
	Port    uint16 // where the node answers
	Local   int    // ready endpoints on this node that take connections, each counted once; of the family that has more
}

// HealthChecks lists the health checks that go with the last table, by Service.
func (c *Compiler) HealthChecks() []HealthCheck {
	list := make([]HealthCheck, 0, len(c.health))
	for _, h := range c.health {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b HealthCheck) int { return compareNames(a.Service, b.Service) })
	return list
}

// HealthChanges lists the health checks that have come, changed or gone (Port
// is 0 then) since it was last called, a Service once, and costs nothing if
// there are none.
func (c *Compiler) HealthChanges() []HealthCheck {
	list := make([]HealthCheck, 0, len(c.healthMoved))
	for key := range c.healthMoved {
		h := c.health[key]
		h.Service = key
		list = append(list, h)
	}
	clear(c.healthMoved)
	return list
}

// compileHealth brings the health check of a Service up to date.
func (c *Compiler) compileHealth(svc *service) {
	old, had := c.health[svc.key]
	if svc.spec == nil || svc.spec.healthPort == 0 {
		if had {
			delete(c.health, svc.key)
			c.healthMoved[svc.key] = struct{}{}
		}
		return
	}
	h := HealthCheck{Service: svc.key, Port: svc.spec.healthPort, Local: max(c.localReady(svc, false), c.localReady(svc, true))}
	if !had || old != h {
		c.health[svc.key] = h
		c.healthMoved[svc.key] = struct{}{}
	}
}

// localReady counts the addresses of a family that are ready on this node and take
// connections, whatever their port.
func (c *Compiler) localReady(svc *service, ipv6 bool) int {
	var list []netip.Addr
	for _, s := range svc.slices {
		for i := range s.endpoints {
			e := &s.endpoints[i]
			if s.ipv6 != ipv6 || e.node != c.nodeView.name {
				continue
			}
			if k := c.nodeView.candidate(svc.spec, e, 0); k.state == ready {
				list = append(list, k.Addr)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return len(slices.Compact(list))
}
