package core

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestKeptTwice: the connections of an address that a node gives up, takes back and gives up
// again much later go on as long as those of the first time.
func TestKeptTwice(t *testing.T) {
	now := time.Unix(1e9, 0)
	a := New("a", 1, now, rand.New(rand.NewPCG(1, 1)))
	a.KeepsConnections(true)
	mine, none := Wanted{Candidates: map[netip.Addr]int32{vip: 0}}, Wanted{}
	pass := func(d time.Duration) {
		for until := now.Add(d); now.Before(until); {
			now = now.Add(a.Next(now))
			a.Wake(now, Senses{})
		}
	}
	giveUp := func() {
		a.Want(now, Senses{}, none, nil)
		pass(Interval)
		if kept := a.ToCount(); len(kept) != 1 || kept[0] != vip {
			t.Fatalf("keeps connections of %v", kept)
		}
	}
	count := func() { a.Count(now, map[netip.Addr]bool{vip: true}, map[netip.Addr]int{vip: 1}) }
	for range 2 {
		a.Want(now, Senses{}, mine, nil)
		pass(time.Second)
		if !a.Owns(now, vip) {
			t.Fatal("it doesn't own the address")
		}
		pass(2 * KeepAtMost)
		giveUp()
		count()
		if kept := a.ToCount(); len(kept) != 1 {
			t.Fatal("its connections ended at once")
		}
	}
	pass(KeepAtMost)
	if count(); len(a.ToCount()) > 0 {
		t.Error("they go on for ever")
	}
}
