package core

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestConflicts: an address that somebody has is tried again later each time, by the node that
// has found it first; who is told of it waits longer, and nothing is remembered for ever.
func TestConflicts(t *testing.T) {
	c, other := newConflicts(), newConflicts()
	now := time.Unix(1e9, 0)
	if c.needsCare(vip) {
		t.Error("care before there was a conflict")
	}
	var last time.Duration
	for i := range 8 {
		if !c.find(now, vip, "mac", "") || c.find(now, vip, "mac", "") {
			t.Error("a conflict is news once")
		}
		other.find(now, vip, "", "a")
		pause := c.now[vip].until.Sub(now)
		if pause <= last && pause != mostPause || pause < firstPause || pause > mostPause {
			t.Errorf("conflict %d: a pause of %s after one of %s", i, pause, last)
		}
		if later := other.now[vip].until.Sub(now); later != pause+othersPause {
			t.Errorf("conflict %d: another node waits %s", i, later)
		}
		last = pause
		now = now.Add(pause + othersPause + 1)
		if !c.expire(now) || !other.expire(now) || len(c.now) > 0 || !c.needsCare(vip) {
			t.Error("the address isn't tried again, with care")
		}
	}
	c.expire(now.Add(rememberedFor))
	if c.needsCare(vip) {
		t.Error("an old conflict is remembered")
	}
	c.find(now, vip, "mac", "")
	if settled := c.meet(now, "mac"); !slices.Equal(settled, []netip.Addr{vip}) || !c.expire(now.Add(1)) || c.needsCare(vip) {
		t.Error("a node's address counts as a stranger's")
	}
}

// TestContested: a machine that turns up later is named, and told from time to time only.
func TestContested(t *testing.T) {
	c, now := newConflicts(), time.Unix(1e9, 0)
	defends, news := 0, 0
	for range 100 {
		now = now.Add(time.Second)
		isNew, defend := c.contested(now, vip, "mac")
		if isNew {
			news++
		}
		if defend {
			defends++
		}
	}
	if defends != 10 || news != 1 {
		t.Errorf("told %d times in 100 s, and named %d times", defends, news)
	}
	if c.expire(now.Add(contestedFor + 1)); len(c.contests) > 0 {
		t.Error("it is named for ever")
	}
}
