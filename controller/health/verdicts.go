package health

import (
	"maps"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// knowledge is what is known of a Service's endpoints.
type knowledge struct {
	verdicts  map[netip.AddrPort]verdict
	allFailed bool
}

// verdict is what was decided of an endpoint, and when that last changed.
type verdict struct {
	check.Verdict
	changed time.Time
}

// judgement is what is known now, and what of it is new.
type judgement struct {
	knowledge
	changes []change
	again   time.Duration // when a change that was held back may be made; 0 if none was
	failed  bool          // allFailed is new
}

// change is an endpoint that has become healthy or unhealthy.
type change struct {
	addr netip.AddrPort
	now  check.Verdict
}

// quiet is how long an endpoint stays what it is after a change, so that votes
// of several nodes that come one after the other cost one write.
const quiet = time.Second

// judge counts the votes about each endpoint. It changes nothing.
func (c *Controller) judge(key types.NamespacedName, wish check.Wish, slices []*discoveryv1.EndpointSlice, votes check.Votes, nodes *check.Nodes, now time.Time) judgement {
	c.mu.Lock()
	before := c.known[key]
	c.mu.Unlock()
	found := judgement{knowledge: knowledge{verdicts: map[netip.AddrPort]verdict{}}}
	usable, checked := false, 0
	for _, s := range slices {
		each(s, wish, func(e *discoveryv1.Endpoint, addr netip.AddrPort) {
			was, known := before.verdicts[addr]
			if !known {
				was.Health = check.PriorHealth(s, e)
			}
			v := verdict{check.Decide(was.Health, nodes.Checkers(addr.Addr(), e.NodeName), votes[addr]), was.changed}
			switch since := now.Sub(was.changed); {
			case v.Health == was.Health:
			case since < quiet && !was.changed.IsZero():
				found.again, v = quiet-since, was
			default:
				v.changed = now
				if was.Health != check.Unknown || v.Health == check.Unhealthy {
					found.changes = append(found.changes, change{addr, v.Verdict})
				}
			}
			if v.Reason == "" {
				v.Reason = was.Reason
			}
			found.verdicts[addr] = v
			checked++
			usable = usable || v.Health != check.Unhealthy
		})
		usable = usable || publishedReady(s)
	}
	found.allFailed = checked > 0 && !usable
	found.failed = found.allFailed && !before.allFailed && len(found.changes) > 0
	return found
}

// each calls f for the endpoints of a slice that are checked, and where.
func each(s *discoveryv1.EndpointSlice, wish check.Wish, f func(*discoveryv1.Endpoint, netip.AddrPort)) {
	if !check.Concerns(s) {
		return
	}
	port, err := check.PortOf(wish.Spec, s.Ports)
	if err != nil {
		return // agents tell
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !check.Checkable(e) {
			continue
		}
		if addr, err := check.AddressOf(e); err == nil {
			f(e, netip.AddrPortFrom(addr, port))
		}
	}
}

// publishedReady reports whether an agent publishes an endpoint in a slice that
// takes traffic.
func publishedReady(s *discoveryv1.EndpointSlice) bool {
	if _, published := s.Labels[check.NodeLabel]; !published {
		return false
	}
	for _, e := range s.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			return true
		}
	}
	return false
}

func (c *Controller) remember(key types.NamespacedName, found judgement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[key] = knowledge{maps.Clone(found.verdicts), found.allFailed}
}

func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}
