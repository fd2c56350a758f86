package l2

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/announce/core"
	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/announce/steering"
	"github.com/fairway-net/fairway/internal/kernel"
)

// cluster is what a node of tests knows of its cluster.
func cluster(node string) *link.Cluster {
	return &link.Cluster{Node: node, Keys: link.NewKeys([]byte("key")), Incarnations: &link.Incarnations{}, Foreign: &link.Foreign{}}
}

// TestCounting: connections are listed while an address that was given up has some, seldom if that
// takes long, and not at all while nothing moves.
func TestCounting(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	a := New(cluster("n"), func() {}, slog.New(slog.DiscardHandler))
	listed := 0
	a.KeepConnections(func(addresses map[netip.Addr]bool) (map[netip.Addr][]kernel.Connection, error) {
		listed++
		return map[netip.Addr][]kernel.Connection{address: make([]kernel.Connection, 3)}, nil
	}, steering.NewInterfaces())
	expect := func(what string, looks, want int) {
		t.Helper()
		listed = 0
		for range looks {
			a.lookAtKept()
		}
		if listed != want {
			t.Errorf("%s: listed %d times, want %d", what, listed, want)
		}
	}
	a.wanted, a.looked = map[netip.Addr]Placement{}, true
	expect("nothing was given up", 10, 0)
	c := core.New("n", 1, time.Now(), rand.New(rand.NewPCG(1, 1)))
	c.KeepsConnections(true)
	c.Keep([]netip.Addr{address}) // what it sends is of no interest
	l := &Link{core: c, log: a.log, own: map[netip.Addr][]kernel.Connection{}}
	a.links[1] = &running{Link: l}
	expect("it isn't known how many there are", 1, 1)
	a.counted, a.took = time.Now(), time.Hour
	expect("listing takes long", 10, 0)
	delete(a.links, 1)
	a.took = 0
	expect("nothing is kept any more", 10, 0)
	if kept, _ := a.Kept(); len(kept) > 0 {
		t.Errorf("%v are kept", kept)
	}
}
