package iptables

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

var update = flag.Bool("update", false, "write the golden files")

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func pool(id model.PoolID, backends ...string) *model.Pool {
	p := &model.Pool{ID: id}
	for _, b := range backends {
		a := netip.MustParseAddrPort(b)
		p.Backends = append(p.Backends, model.Backend{Addr: a.Addr(), Port: a.Port(), Weight: 1, Local: id.Local})
	}
	return p
}

func frontend(to string, proto model.Protocol, name string, e model.FrontendType, routes ...model.Route) *model.Frontend {
	a := netip.MustParseAddrPort(to)
	return &model.Frontend{
		Key: model.Key{Addr: a.Addr(), Port: a.Port(), Proto: proto}, Name: name, FrontendType: e, Routes: [3]model.Route(routes),
	}
}

// goldenTables are a few of the things that Services say.
func goldenTables() map[string]*model.Table {
	api := model.PoolID{Name: "default/kubernetes:https", Proto: model.TCP}
	dns := model.PoolID{Name: "kube-system/kube-dns:dns", Proto: model.UDP}
	web := model.PoolID{Name: "shop/web:http", Proto: model.TCP}
	local := web
	local.Local = true
	web6 := web
	web6.IPv6 = true
	idle := model.PoolID{Name: "shop/idle", Proto: model.TCP}
	settings := &model.Settings{
		Pods:      model.PodMatch{Prefixes: prefixes("10.244.0.0/16", "fd00:10:244::/56")},
		NodeAddrs: addrs("192.168.0.1", "fd00::1"),
		Reserved:  prefixes("10.96.0.0/12", "fd00:10:96::/112"),
		Exempt:    addrs("10.96.7.7"),
	}
	to := func(id model.PoolID) model.Route { return model.Route{Pool: id} }
	masq := func(id model.PoolID) model.Route { return model.Route{Pool: id, Masquerade: true} }

	clusterIPs := model.NewTable().Edit()
	clusterIPs.SetSettings(settings)
	clusterIPs.SetPool(pool(api, "192.168.0.1:6443"))
	clusterIPs.SetPool(pool(dns, "10.244.0.2:53", "10.244.1.2:53", "10.244.2.2:53"))
	sticky := pool(web6, "[fd00:10:244::2]:80", "[fd00:10:244:1::2]:80")
	sticky.Affinity = 3 * time.Hour
	clusterIPs.SetPool(sticky)
	clusterIPs.SetPool(pool(idle))
	clusterIPs.SetFrontend(frontend("10.96.0.1:443", model.TCP, api.Name, model.ClusterIP, to(api), masq(api), masq(api)))
	clusterIPs.SetFrontend(frontend("10.96.0.10:53", model.UDP, dns.Name, model.ClusterIP, to(dns), masq(dns), masq(dns)))
	clusterIPs.SetFrontend(frontend("[fd00:10:96::20]:80", model.TCP, web.Name, model.ClusterIP, to(web6), masq(web6), masq(web6)))
	clusterIPs.SetFrontend(frontend("10.96.0.30:80", model.TCP, idle.Name, model.ClusterIP, to(idle), masq(idle), masq(idle)))

	entrances := model.NewTable().Edit()
	entrances.SetSettings(settings)
	weighted := pool(web, "10.244.0.5:8080", "10.244.1.5:8080")
	weighted.Backends[0].Weight = 3
	entrances.SetPool(weighted)
	entrances.SetPool(pool(local, "10.244.0.5:8080"))
	entrances.SetFrontend(frontend("10.96.0.20:80", model.TCP, web.Name, model.ClusterIP, to(web), masq(web), masq(web)))
	for _, a := range []string{"192.168.0.1:30080", "127.0.0.1:30080"} {
		entrances.SetFrontend(frontend(a, model.TCP, web.Name, model.NodePort, to(web), masq(web), to(local)))
	}
	guarded := frontend("203.0.113.5:80", model.TCP, web.Name, model.LoadBalancerIP, to(web), masq(web), to(local))
	guarded.Sources = prefixes("10.0.0.0/8", "198.51.100.0/24")
	entrances.SetFrontend(guarded)

	many := cluster(40, 1)
	return map[string]*model.Table{"clusterips": clusterIPs.Table(), "entrances": entrances.Table(), "many": many}
}

func TestGolden(t *testing.T) {
	for name, table := range goldenTables() {
		t.Run(name, func(t *testing.T) {
			if err := table.Validate(); err != nil {
				t.Fatal(err)
			}
			files, err := Script(table, kernel.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for file, content := range files {
				path := filepath.Join("testdata", name+"."+file)
				if *update {
					if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if content != string(want) {
					t.Errorf("%s differs from what is rendered; if that is right, run the test with -update. Rendered:\n%s", path, content)
				}
			}
		})
	}
}

// TestScriptIsWhatApplyInstalls feeds the script to the tools by hand: Apply
// then finds nothing to do.
func TestScriptIsWhatApplyInstalls(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		for name, table := range goldenTables() {
			p := newPlane(t, o)
			files, err := Script(table, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range iptables.Families() {
				if err := p.tool.Restore(t.Context(), f, []byte(files[f.Command()+".rules"])); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if n := restored(t, newPlane(t, o), table); n != 0 {
				t.Errorf("%s: Apply would rewrite %d chains, want none", name, n)
			}
			if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
				t.Fatal(err)
			}
		}
	})
}
