package iptables

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestReadingIsSpared: nothing is read, and all is known, as long as this plane alone
// changes anything; after somebody else did, all is read once. Whether it was read
// shows in whether the state is another one.
func TestReadingIsSpared(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		counted := o.IPTablesVariant == string(iptables.NFT)
		p, table := newPlane(t, o), model.NewTable()
		readBy := func(step string, verify, want bool) {
			t.Helper()
			before := p.states[iptables.IPv4]
			apply(t, p, table, verify)
			if read := p.states[iptables.IPv4] != before; read != want {
				t.Errorf("%s: tables are read: %t, want %t", step, read, want)
			}
			if check(t, p, table); counted != (p.cache.at != 0) {
				t.Errorf("%s: all is known: %t", step, p.cache.at != 0)
			}
		}
		r := rand.New(rand.NewPCG(1, 7))
		table = randomEdit(r, table, 10, 100)
		readBy("start", false, true)
		readBy("a comparison", true, !counted)
		for range 20 {
			next := randomEdit(r, table, 10, pick(r, 1, 1, 20))
			settings := next.Since(table).Settings // which make another state, too
			table = next
			readBy("a change", false, settings)
		}
		readBy("a comparison after changes", true, !counted)

		p.cache.readAt = p.cache.readAt.Add(-kernel.ReadingPeriod)
		readBy("a comparison after a while", true, true)
		readBy("the next", true, !counted)

		breakIt := func() {
			var in iptables.Input
			in.Block("nat").Chain(servicesChain)
			if err := p.tool.Restore(context.Background(), iptables.IPv4, in.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		breakIt()
		readBy("a comparison after somebody's change", true, true)
		readBy("the next", true, !counted)
		table = randomEdit(r, table, 10, 20) // of all chains but one
		breakIt()
		apply(t, p, table, false)
		if p.cache.at != 0 {
			t.Error("all is known although somebody changed something before a change")
		}
		readBy("a comparison after both", true, true)
		run(t, "iptables-"+o.IPTablesVariant, "-t", "mangle", "-A", "INPUT", "-j", "ACCEPT")
		readBy("a comparison after a change that isn't of ours", true, true)
	})
}
