package check

import "time"

// Health is what is known of an endpoint.
type Health uint8

// Unknown is an endpoint of which too little is known yet.
const (
	Unknown Health = iota
	Healthy
	Unhealthy
)

func (h Health) String() string { return [...]string{"unknown", "healthy", "unhealthy"}[h] }

// silentIntervals is after how many intervals without any answer an endpoint is
// unhealthy, if fall is not less.
const silentIntervals = 2

// quiet is how long an endpoint's health stays as it is after a change, so that
// one that flaps costs at most one write a second.
const quiet = time.Second

// State judges the answers of one endpoint over time. The zero value knows nothing.
type State struct {
	Health Health
	Reason string // of the last answer that changed Health

	passes, failures, silences int
	changed                    time.Time
}

// Observe takes in one answer and reports whether Health is another now.
func (s *State) Observe(r Result, spec *Spec, now time.Time) bool {
	if r.Outcome == Passed {
		s.passes, s.failures, s.silences = s.passes+1, 0, 0
	} else {
		s.passes, s.failures = 0, s.failures+1
	}
	if r.Outcome == Silent {
		s.silences++
	} else {
		s.silences = 0
	}
	next := s.next(r, spec)
	if next == s.Health || !s.changed.IsZero() && now.Sub(s.changed) < quiet {
		return false // a change that was held back comes with a later answer
	}
	s.Health, s.Reason, s.changed = next, r.Reason, now
	return true
}

// next is the health that the answers so far amount to.
func (s *State) next(r Result, spec *Spec) Health {
	switch {
	case r.Outcome == Passed && (s.Health == Unknown || s.passes >= spec.Rise):
		return Healthy
	case r.Outcome == Refused, s.failures >= spec.Fall, s.silences >= silentIntervals:
		return Unhealthy
	}
	return s.Health
}
