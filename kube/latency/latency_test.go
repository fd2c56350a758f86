package latency

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDelaysAreNeverNegative: the clock that a change was stamped by may be ahead.
func TestDelaysAreNeverNegative(t *testing.T) {
	c := New("kubeproxy")
	c.waiting = []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Second)}
	c.Taken()
	delays := c.SyncEnded(true, []string{"IPv4"})
	if len(delays) != 2 || delays[0] != 0 || delays[1] < time.Second {
		t.Errorf("got %v", delays)
	}
}

// TestClocksSetBack: changes go on being timed where the clock of who stamps them
// is set back.
func TestClocksSetBack(t *testing.T) {
	c := New("kubeproxy")
	c.began = time.Now().Add(-time.Minute)
	timed := 0
	tell := func(at time.Time) int {
		c.Slice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
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
	c := New("kubeproxy")
	for range 3 {
		for range maxWaiting {
			c.waiting = append(c.waiting, time.Now())
		}
		c.Taken()
		if c.SyncEnded(false, nil); len(c.underway) > maxWaiting || len(c.waiting) > 0 {
			t.Fatalf("%d changes are timed", len(c.underway))
		}
	}
}
