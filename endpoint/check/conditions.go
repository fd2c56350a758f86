package check

import (
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Checked is the annotation of EndpointSlices whose `ready` health checks have
// decided: it says true.
const Checked = "fairway.dev/health-checked"

// PriorHealth returns what the conditions of an endpoint say that checks found.
func PriorHealth(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) Health {
	switch {
	case s.Annotations[Checked] != "true":
		return Unknown
	case e.Conditions.Ready != nil && !*e.Conditions.Ready:
		return Unhealthy
	}
	return Healthy
}

// SetReady makes an endpoint ready or not, and reports whether that changes it.
// One that is about to go stays as its owner has made it.
func SetReady(e *discoveryv1.Endpoint, ready bool) bool {
	c := &e.Conditions
	if c.Terminating != nil && *c.Terminating {
		return false
	}
	if (c.Ready == nil || *c.Ready) == ready && (c.Serving == nil || *c.Serving) == ready {
		return false
	}
	c.Ready, c.Serving = &ready, &ready
	return true
}

// MarkChecked notes in a slice that checks decide about its endpoints, or that they
// don't any more, and reports whether that changes it.
func MarkChecked(s *discoveryv1.EndpointSlice, checked bool) bool {
	if (s.Annotations[Checked] == "true") == checked {
		return false
	}
	if !checked {
		delete(s.Annotations, Checked)
		return true
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[Checked] = "true"
	return true
}

// CarryMark takes over into a slice that is about to replace another what checks
// have decided: conditions of endpoints that are in both.
func CarryMark(from, to *discoveryv1.EndpointSlice) {
	if from.Annotations[Checked] != "true" {
		return
	}
	MarkChecked(to, true)
	decided := map[string]discoveryv1.EndpointConditions{}
	for _, e := range from.Endpoints {
		if len(e.Addresses) > 0 && Checkable(&e) {
			decided[e.Addresses[0]] = e.Conditions
		}
	}
	for i := range to.Endpoints {
		e := &to.Endpoints[i]
		if len(e.Addresses) == 0 || !Checkable(e) {
			continue
		}
		if conditions, known := decided[e.Addresses[0]]; known {
			e.Conditions = conditions
		}
	}
}
