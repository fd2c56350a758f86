package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	h.setPatience(time.Hour)
	if !live() {
		t.Error("unwell though it may wait for longer now")
	}
	h.setPatience(time.Minute)
	done(now.Add(-5 * time.Minute)) // it began before the change came
	if live() {
		t.Error("well though the sync didn't have the change")
	}
	done(now)
	if !live() {
		t.Error("unwell after the sync that had the change")
	}
}

// TestDelaysAreNeverNegative: the clock that a change was stamped by may be ahead.
func TestDelaysAreNeverNegative(t *testing.T) {
	c := newChanges()
	c.waiting = []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Second)}
	c.taken()
	delays := c.syncEnded(true, []string{"IPv4"})
	if len(delays) != 2 || delays[0] != 0 || delays[1] < time.Second {
		t.Errorf("got %v", delays)
	}
}

// TestClocksSetBack: changes go on being timed where the clock of who stamps them
// is set back.
func TestClocksSetBack(t *testing.T) {
	c := newChanges()
	c.began = time.Now().Add(-time.Minute)
	timed := 0
	tell := func(at time.Time) int {
		c.slice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: at.Format(time.RFC3339Nano)},
		}})
		before := timed
		timed = len(c.waiting)
		return timed - before
	}
	now := time.Now()
	for _, step := range []struct {
		what string
		at   time.Time
		want int
	}{
		{"made before the agent began", now.Add(-time.Hour), 0},
		{"stamped by a clock that is ahead", now.Add(time.Hour), 1},
		{"the same again", now.Add(time.Hour), 0},
		{"stamped by that clock, which was set back", now, 1},
	} {
		if got := tell(step.at); got != step.want {
			t.Errorf("%s: %d timed, want %d", step.what, got, step.want)
		}
	}
}

// TestTimingIsBounded: syncs that fail for as long as they like hold no more than a
// sample of the changes meanwhile.
func TestTimingIsBounded(t *testing.T) {
	c := newChanges()
	for range 3 {
		for range maxWaiting {
			c.waiting = append(c.waiting, time.Now())
		}
		c.taken()
		if c.syncEnded(false, nil); len(c.underway) > maxWaiting || len(c.waiting) > 0 {
			t.Fatalf("%d changes are timed", len(c.underway))
		}
	}
}
