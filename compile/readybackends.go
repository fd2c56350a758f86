package compile

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/model"
)

// ReadyBackends lists who takes new connections of a Service's port, in both families:
// for proxies that go to endpoints straight, and choose them as the data planes
// do. Headless Services have takers too. The port is named as in slices.
func (c *Compiler) ReadyBackends(service types.NamespacedName, portName string, proto model.Protocol) []model.Backend {
	svc := c.services[service]
	if svc == nil || svc.spec == nil {
		return nil
	}
	var list, backups []model.Backend
	for _, ipv6 := range []bool{false, true} {
		c.gather(svc, &port{name: portName, proto: proto}, ipv6)
		pool := model.Pool{ID: model.PoolID{Proto: proto, IPv6: ipv6}}
		c.scratch.choose(&pool)
		if c.scratch.onBackups {
			backups = append(backups, pool.Backends...)
		} else {
			list = append(list, pool.Backends...)
		}
	}
	if len(list) == 0 {
		return backups
	}
	return list
}
