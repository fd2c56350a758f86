package check

import (
	"testing"
	"time"
)

// TestState plays answers, one each two seconds: . passed, r refused, s silent,
// w wrong. The health after each: h healthy, u unhealthy, ? unknown.
func TestState(t *testing.T) {
	for _, c := range []struct{ answers, health string }{
		{".", "h"},             // the first good answer is enough
		{".r", "hu"},           // a refused connection counts at once
		{".ss", "hhu"},         // silence after two intervals
		{".s.s", "hhhh"},       // not in a row
		{".www", "hhhu"},       // wrong answers when they repeat
		{".ww.ww", "hhhhhh"},   // fall counts from the last good answer
		{".sww", "hhhu"},       // failures of different kinds add up
		{".r..", "huuh"},       // rise
		{".r.r.", "huuuu"},     // rise counts from the last bad answer
		{"r", "u"}, {"w", "?"}, // of a new endpoint
		{"ww.", "??h"}, {"www", "??u"}, {"ss", "?u"},
	} {
		spec, err := Parse("tcp")
		if err != nil {
			t.Fatal(err)
		}
		var state State
		now, got := time.Unix(0, 0), ""
		for _, answer := range c.answers {
			now = now.Add(2 * time.Second)
			outcome := map[rune]Outcome{'.': Passed, 'r': Refused, 's': Silent, 'w': Wrong}[answer]
			before := state.Health
			if changed := state.Observe(Result{Outcome: outcome}, &spec, now); changed != (before != state.Health) {
				t.Errorf("%s: changed is %v from %s to %s", c.answers, changed, before, state.Health)
			}
			got += map[Health]string{Unknown: "?", Healthy: "h", Unhealthy: "u"}[state.Health]
		}
		if got != c.health {
			t.Errorf("%s: health is %s, want %s", c.answers, got, c.health)
		}
	}
}

// TestFlappingIsHeldBack: an endpoint that changes with every answer changes
// once a second, and ends at what it is.
func TestFlappingIsHeldBack(t *testing.T) {
	spec := Spec{Rise: 1, Fall: 1, Interval: Shortest, Timeout: Shortest}
	var state State
	now, changes := time.Unix(0, 0), 0
	for i := range 100 {
		outcome := Passed
		if i%2 == 1 {
			outcome = Refused
		}
		if state.Observe(Result{Outcome: outcome}, &spec, now) {
			changes++
		}
		now = now.Add(spec.Interval)
	}
	if changes > 11 {
		t.Errorf("%d changes in ten seconds", changes)
	}
	state.Observe(Result{Outcome: Refused}, &spec, now.Add(time.Minute))
	if state.Health != Unhealthy {
		t.Errorf("health is %s in the end", state.Health)
	}
}
