package ipvs

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

// builder makes tables for tests.
type builder struct {
	t    *testing.T
	edit *model.Edit
}

func edit(t *testing.T, from *model.Table) *builder { return &builder{t, from.Edit()} }

func (b *builder) table() *model.Table {
	b.t.Helper()
	table := b.edit.Table()
	if err := table.Validate(); err != nil {
		b.t.Fatal(err)
	}
	return table
}

func settings() *model.Settings {
	return &model.Settings{
		Pods:      model.PodMatch{Prefixes: prefixes("10.244.0.0/16", "fd00:244::/56"), Interfaces: []string{"cali*"}},
		NodeAddrs: []netip.Addr{netip.MustParseAddr("192.168.9.1"), netip.MustParseAddr("fd00:9::1")},
		Reserved:  prefixes("10.96.0.0/16", "fd00:96::/112"),
		Exempt:    []netip.Addr{netip.MustParseAddr("10.96.0.99")},
	}
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func backends(list ...string) []model.Backend {
	var all []model.Backend
	for _, at := range list {
		ap := netip.MustParseAddrPort(at)
		all = append(all, model.Backend{Addr: ap.Addr(), Port: ap.Port(), Weight: 1, Local: true})
	}
	slices.SortFunc(all, model.Backend.Compare)
	return all
}

func (b *builder) pool(p model.Pool, list ...string) model.PoolID {
	if p.ID.Proto == 0 {
		p.ID.Proto = model.TCP
	}
	p.Backends = backends(list...)
	b.edit.SetPool(&p)
	return p.ID
}

func key(at string, proto model.Protocol) model.Key {
	ap := netip.MustParseAddrPort(at)
	return model.Key{Addr: ap.Addr(), Port: ap.Port(), Proto: proto}
}

// frontend leads everybody to one pool.
func (b *builder) frontend(at string, entrance model.FrontendType, pool model.PoolID, masquerade bool) *model.Frontend {
	r := model.Route{Pool: pool, Masquerade: masquerade}
	f := &model.Frontend{
		Key: key(at, pool.Proto), Name: pool.Name, FrontendType: entrance, Routes: [model.NumOrigins]model.Route{r, r, r},
	}
	b.edit.SetFrontend(f)
	return f
}

// local leads as under externalTrafficPolicy Local.
func (b *builder) local(at string, entrance model.FrontendType, all, here model.PoolID) *model.Frontend {
	f := b.frontend(at, entrance, all, false)
	f.Routes[model.FromNode].Masquerade = true
	f.Routes[model.FromOutside] = model.Route{Pool: here}
	return f
}

// everything is a table with one of each.
func everything(t *testing.T) *model.Table {
	b := edit(t, model.NewTable())
	b.edit.SetSettings(settings())
	web := b.pool(model.Pool{ID: model.PoolID{Name: "default/web:http"}}, "10.244.0.2:8080", "10.244.1.2:8080")
	here := b.pool(model.Pool{ID: model.PoolID{Name: "default/web:http", Local: true}, Empty: model.Drop}, "10.244.0.2:8080")
	f := b.frontend("10.96.0.10:80", model.ClusterIP, web, false)
	f.Routes[model.FromOutside].Masquerade = true
	b.local("192.168.9.1:30080", model.NodePort, web, here)
	b.local("203.0.113.10:80", model.LoadBalancerIP, web, here).Sources = prefixes("0.0.0.0/0", "192.168.0.0/16")
	b.frontend("203.0.113.20:80", model.ExternalIP, web, true)
	gone := b.pool(model.Pool{ID: model.PoolID{Name: "default/gone:http"}})
	b.frontend("10.96.0.11:80", model.ClusterIP, gone, false)
	silent := b.pool(model.Pool{ID: model.PoolID{Name: "default/silent:http"}, Empty: model.Drop})
	b.frontend("192.168.9.1:30081", model.NodePort, silent, true)
	dns := b.pool(model.Pool{ID: model.PoolID{Name: "kube-system/dns:dns", Proto: model.UDP}}, "10.244.0.3:53", "10.244.1.3:53")
	b.frontend("10.96.0.53:53", model.ClusterIP, dns, false)
	b.frontend("192.168.9.1:30053", model.NodePort, dns, true)
	sctp := b.pool(model.Pool{ID: model.PoolID{Name: "default/sctp:s", Proto: model.SCTP}, Scheduler: model.LeastConnection}, "10.244.0.4:7777")
	b.frontend("10.96.0.12:77", model.ClusterIP, sctp, false)
	b.frontend("192.168.9.1:30077", model.NodePort, sctp, true)
	sticky := b.pool(model.Pool{ID: model.PoolID{Name: "default/sticky:http"}, Affinity: 3 * time.Hour}, "10.244.0.5:80", "10.244.1.5:80")
	b.frontend("10.96.0.13:80", model.ClusterIP, sticky, false)
	six := b.pool(model.Pool{ID: model.PoolID{Name: "default/web:http", IPv6: true}}, "[fd00:244::2]:8080", "[fd00:244:0:1::2]:8080")
	b.frontend("[fd00:96::10]:80", model.ClusterIP, six, false)
	b.frontend("[fd00:9::1]:30080", model.NodePort, six, true)
	draining := model.Pool{ID: model.PoolID{Name: "default/draining:http", Proto: model.TCP}, Scheduler: model.DestinationHashing}
	draining.Backends, draining.Draining = backends("10.244.0.6:80"), backends("10.244.0.7:80")
	draining.Backends[0].Weight = 5
	b.edit.SetPool(&draining)
	b.frontend("10.96.0.14:80", model.ClusterIP, draining.ID, false)
	return b.table()
}
