package userspace

import (
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestCounters: the relay of a plane tells what it has counted, and goes on when
// another agent finds it.
func TestCounters(t *testing.T) {
	dir := t.TempDir()
	p := newPlane(t, dir)
	if counts, err := p.frontendCounts(t.Context()); err != nil || len(counts) > 0 {
		t.Fatalf("before there is a relay: %v, %v", counts, err)
	}
	apply(t, p, tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))}))
	mustDial(t, "10.96.0.1:80").mustSay(t, "a")
	for _, of := range []*Plane{p, newPlane(t, dir)} {
		eventually(t, "what was passed on is counted", func() bool { // which comes after it is passed on
			counts, err := of.frontendCounts(t.Context())
			if err != nil || len(counts) != 1 || counts[0].Connections != 1 {
				t.Fatalf("counted %+v, %v", counts, err)
			}
			return counts[0].In > 0
		})
	}
	if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Fatal(err)
	}
}

func TestTrafficIsCounted(t *testing.T) {
	r := inProcess(t)
	udp, _ := udpBackend(t, "u")
	web, dgrams := pool("web", model.TCP, tcpBackend(t, echo("one"))), pool("dns", model.UDP, udp)
	table := tableOf(map[string]*model.Pool{"127.1.0.1:8080": web, "127.1.0.2:5353": dgrams})
	applyTo(t, r, table)
	for range 2 {
		c := mustDial(t, "127.1.0.1:8080")
		c.mustSay(t, "one")
	}
	conn := dialUDP(t, "127.1.0.2:5353")
	exchange(t, conn)
	exchange(t, conn)
	var got map[string]kernel.Count
	eventually(t, "all counted", func() bool {
		got = map[string]kernel.Count{}
		for _, c := range r.traffic.counts() {
			got[c.Frontend.Addr.String()] = c
		}
		web, dns := got["127.1.0.1"], got["127.1.0.2"]
		return web.Connections == 2 && web.In > 0 && web.Out > 0 && dns.Connections == 1 && dns.In > 0 && dns.Out > 0
	})
	applyTo(t, r, with(table, pool("dns", model.UDP)))
	e := r.current().Edit()
	for f := range r.current().Frontends() {
		e.DeleteFrontend(f.Key)
	}
	applyTo(t, r, e.Table())
	if counts := r.traffic.counts(); len(counts) > 0 {
		t.Errorf("of frontends that are gone: %+v", counts)
	}
}
