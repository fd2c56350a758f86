package ipvs

import (
	"context"
	"net/netip"
	"testing"
	"time"

	mobyipvs "github.com/moby/ipvs"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// TestTimeouts: those asked for are set, and put back when they are asked for no
// more, unless somebody else has set them since.
func TestTimeouts(t *testing.T) {
	f := newFakeIPVS()
	found := f.config
	dir := t.TempDir()
	keep := func(o kernel.IPVSOptions) *lvs.SettingsKeeper {
		t.Helper()
		k := lvs.NewSettingsKeeper(kernel.Options{StateDir: dir, IPVS: o}, f)
		if err := k.SetTimeouts(); err != nil {
			t.Fatal(err)
		}
		return k
	}
	asked := kernel.IPVSOptions{TCP: 10 * time.Minute, TCPFin: 20 * time.Second, UDP: 30 * time.Second}
	keep(asked)
	keep(asked) // by another process
	if want := (mobyipvs.Config{TimeoutTCP: asked.TCP, TimeoutTCPFin: asked.TCPFin, TimeoutUDP: asked.UDP}); f.config != want {
		t.Errorf("set %+v, want %+v", f.config, want)
	}
	k := keep(kernel.IPVSOptions{TCP: 10 * time.Minute, UDP: 40 * time.Second})
	if f.config.TimeoutTCPFin != found.TimeoutTCPFin || f.config.TimeoutUDP != 40*time.Second {
		t.Errorf("not asked for any more: %+v, found %+v", f.config, found)
	}
	f.config.TimeoutUDP = 50 * time.Second // by somebody else
	if err := k.Restore(); err != nil {
		t.Fatal(err)
	}
	if want := (mobyipvs.Config{TimeoutTCP: found.TimeoutTCP, TimeoutTCPFin: found.TimeoutTCPFin, TimeoutUDP: 50 * time.Second}); f.config != want {
		t.Errorf("put back: %+v, want %+v", f.config, want)
	}
}

// TestExcludedServersStay: a virtual server of somebody else's in an excluded
// range stays, also at an address of kube-ipvs0 or of the Services' ranges.
func TestExcludedServersStay(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		p.options.IPVS.Exclude = []netip.Prefix{netip.MustParsePrefix("10.96.0.200/30")}
		theirs := lvs.KeyServer(key("10.96.0.201:80", model.TCP))
		stale := lvs.KeyServer(key("10.96.0.204:80", model.TCP))
		for _, id := range []lvs.ServerID{theirs, stale} {
			if err := f.NewService(lvs.ToService(id, lvs.Service{Scheduler: model.RoundRobin})); err != nil {
				t.Fatal(err)
			}
		}
		b := edit(t, model.NewTable())
		b.edit.SetSettings(settings())
		b.frontend("10.96.0.202:80", model.ClusterIP, b.pool(model.Pool{ID: model.PoolID{Name: "a/ours:p"}}, "10.244.0.2:80"), false)
		apply(t, p, b.table(), false)
		if f.servers[theirs] == nil || f.servers[stale] != nil {
			t.Errorf("excluded: there %t; not excluded: there %t", f.servers[theirs] != nil, f.servers[stale] != nil)
		}
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if len(f.servers) != 1 || f.servers[theirs] == nil {
			t.Errorf("%d servers are left", len(f.servers))
		}
	})
}
