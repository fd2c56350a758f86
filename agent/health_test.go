package agent

import (
	"testing"
	"time"

	"github.com/fairway-net/fairway/model"
)

// TestHealthOverTime lets hours pass. Clocks that are set leave time.Time's
// monotonic part alone, which is what differences are made of.
func TestHealthOverTime(t *testing.T) {
	now := time.Now()
	h := newHealth(time.Minute)
	h.now = func() time.Time { return now }
	live := func() bool { l, _, _ := h.state(); return l }
	done := func(began time.Time) { h.syncEnded(syncOutcome{Table: model.NewTable(), Began: began}) }

	if live() {
		t.Error("well before the first sync")
	}
	h.changed()
	done(now)
	now = now.Add(9 * time.Hour) // the API is away
	if !live() {
		t.Error("unwell though nothing waits")
	}
	h.changed()
	now = now.Add(59 * time.Second)
	if !live() {
		t.Error("unwell before its time")
	}
	h.changed() // the first one counts
	now = now.Add(2 * time.Second)
	if live() {
		t.Error("well though a change has waited for too long")
	}
	h.setChangeTimeout(time.Hour)
	if !live() {
		t.Error("unwell though it may wait for longer now")
	}
	h.setChangeTimeout(time.Minute)
	done(now.Add(-5 * time.Minute)) // it began before the change came
	if live() {
		t.Error("well though the sync didn't have the change")
	}
	done(now)
	if !live() {
		t.Error("unwell after the sync that had the change")
	}
}
