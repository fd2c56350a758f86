package nftables

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestRepair undoes what others did to the table.
func TestRepair(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	for _, command := range []string{
		"add element inet fairway exempt4 { 10.96.0.78 }",
		"delete element inet fairway exempt4 { 10.96.0.77 }",
		"flush map inet fairway from-pod4",
		"add rule inet fairway services counter accept",
		"flush chain inet fairway refuse",
		"flush chain inet fairway nat-prerouting",
		"add chain inet fairway foreign; add rule inet fairway services jump foreign",
		"add chain inet fairway base { type filter hook input priority 0; policy drop; }",
		"add set inet fairway foreign { type ipv4_addr; }; add rule inet fairway services ip saddr @foreign drop",
		"delete element inet fairway choosers-pod { 1064:2 }",
		"flush map inet fairway slots4",
		"flush set inet fairway pods4",
		"delete table inet fairway",
		"delete table inet fairway; add table inet fairway",
		"add chain inet fairway nat-input { policy drop; }",
	} {
		checkSays(t, p, table, true)
		nft(t, command)
		checkSays(t, p, table, false)
		apply(t, p, table, true)
		if t.Failed() {
			return
		}
		checkObjects(t, p, table)
		if t.Failed() {
			t.Fatalf("after nft %s", command)
		}
	}
}

func checkSays(t *testing.T, p *Plane, table *model.Table, want bool) {
	t.Helper()
	found, err := p.check(context.Background(), table)
	if agrees := len(found.Found) == 0 && !found.Spare; err != nil || agrees != want {
		t.Errorf("comparing beside changes says that all agrees: %t (%v), want %t: %q", agrees, err, want, slices.Collect(maps.Keys(found.Found)))
	}
}

// TestCheckBesideChanges compares all the time while changes are made: it needs no
// more than that they end.
func TestCheckBesideChanges(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	apply(t, p, table, false)
	web := model.PoolID{Name: "default/web:http", Proto: model.TCP}
	nft(t, "delete element inet fairway exempt4 { 10.96.0.77 }") // the one that is real
	over, ended := make(chan struct{}), make(chan error, 1)
	var always *kernel.Differences // found every time
	go func() {
		var err error
		for err == nil && !closed(over) {
			var found kernel.Differences
			if found, err = p.check(context.Background(), table); always == nil {
				always = &found
			}
			always.Keep(found)
		}
		ended <- err
	}()
	last := table
	for range 10 {
		for _, list := range [][]string{{"10.244.1.3:8080", "10.244.2.3:8080"}, {"10.244.1.1:8080", "10.244.1.3:8080", "10.244.2.3:8080"}} {
			last = editPool(last, web, func(pool *model.Pool) { pool.Backends = backends(list...) })
			apply(t, p, last, false)
		}
	}
	apply(t, p, table, false)
	for range 2 {
		if _, err := p.check(context.Background(), table); err != nil {
			t.Error(err)
		}
	}
	close(over)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(always.Found) != 1 {
		t.Errorf("what differs in every comparison: %q; want the one element that was removed", slices.Collect(maps.Keys(always.Found)))
	}
	apply(t, p, last, true) // what is spare goes
	checkSays(t, p, last, true)
	if _, err := p.Apply(context.Background(), table, kernel.VerifyRest); err != nil {
		t.Fatal(err)
	}
	checkObjects(t, p, table)
}

// TestReadingIsSpared: comparing with another table finds differences only if
// something is read.
func TestReadingIsSpared(t *testing.T) {
	inNamespace(t)
	p := newPlane(t, kernel.Options{})
	table := everything()
	other := editPool(table, model.PoolID{Name: "default/web:http", Proto: model.TCP}, func(pool *model.Pool) { pool.Backends = nil })
	reads := func(step string, want bool) {
		t.Helper()
		found, err := p.check(context.Background(), other)
		if read := len(found.Found) > 0; err != nil || read != want {
			t.Errorf("%s: tables are read: %t (%v), want %t", step, read, err, want)
		}
	}
	apply(t, p, table, false)
	reads("after the start", false)
	for range 3 {
		apply(t, p, other, false)
		apply(t, p, table, false)
	}
	reads("after changes", false)
	nft(t, "add table ip others")
	reads("after somebody's change", true)
	reads("as long as it differs", true)
	apply(t, p, table, true)
	reads("after repair", false)
	nft(t, "delete table ip others")
	checkSays(t, p, table, true)
	reads("when all agreed although somebody changed something", false)
	nft(t, "add table ip others")
	apply(t, p, other, false)
	apply(t, p, table, false)
	reads("after changes that followed somebody's", true)
	checkSays(t, p, table, true)
	p.cache.readAt.Add(-int64(kernel.ReadingPeriod / time.Second))
	reads("after a while", true)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestDriftIsNoticed: others' changes are reported, own ones are not.
func TestDriftIsNoticed(t *testing.T) {
	inNamespace(t)
	drift := make(chan struct{}, 100)
	p := newPlane(t, kernel.Options{Drift: func() { drift <- struct{}{} }})
	table := everything()
	apply(t, p, table, false)
	table = editPool(table, model.PoolID{Name: "default/web:http", Proto: model.TCP}, func(pool *model.Pool) {
		pool.Backends = backends("10.244.1.3:8080")
	})
	apply(t, p, table, false)
	nft(t, "add table inet another; add chain inet another c")
	nft(t, "add element inet fairway exempt4 { 10.96.0.78 }")
	select {
	case <-drift:
	case <-time.After(30 * time.Second):
		t.Fatal("a foreign change went unnoticed for 30 s")
	}
	if len(drift) > 0 {
		t.Errorf("%d more reports than changes", len(drift))
	}
}
