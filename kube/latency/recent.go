package latency

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Recent is a change of a Service or of its endpoints, and when it was in force here.
type Recent struct {
	Service types.NamespacedName
	Made    time.Time // zero if nobody says
	Heard   time.Time
	InForce time.Time
}

// mostRecent is how many changes are remembered, and how many may wait to be.
const mostRecent = 1000

// recent remembers the latest changes. What is told at the start isn't remembered: all
// that there is has changed then.
type recent struct {
	fresh, underway []Recent // not in force yet
	done            []Recent // the latest last
	begun           bool     // a sync has succeeded
}

// heard notes a change.
func (r *recent) heard(service types.NamespacedName, made time.Time) {
	if r.begun && service.Name != "" && len(r.fresh)+len(r.underway) < mostRecent {
		r.fresh = append(r.fresh, Recent{Service: service, Made: made, Heard: time.Now()})
	}
}

// taken notes that a sync begins with all that was heard.
func (r *recent) taken() {
	r.underway = append(r.underway, r.fresh...)
	r.fresh = r.fresh[:0]
}

// inForce notes that the sync has succeeded.
func (r *recent) inForce() {
	r.begun = true
	now := time.Now()
	for _, c := range r.underway {
		c.InForce = now
		if len(r.done) == mostRecent {
			r.done = slices.Delete(r.done, 0, mostRecent/10)
		}
		r.done = append(r.done, c)
	}
	r.underway = r.underway[:0]
}

// Recent are the latest changes that are in force, the latest last.
func (c *Changes) Recent() []Recent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.recent.done)
}

// madeAt is when what a slice tells of has happened; zero if it doesn't say.
func madeAt(s *discoveryv1.EndpointSlice) time.Time {
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{} // written by somebody who doesn't say
	}
	return at
}
