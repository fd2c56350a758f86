package planes

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// wanted is what real packets must meet.
type wanted struct {
	outcome  Outcome
	reach    Reach
	backends map[string]bool // name of each that may answer: whether it must see the node's address
	least    int             // connections at least
	most     int             // connections until All is given up
	from     string          // the client's name
	lenient  bool            // the plane can't keep client addresses ...
	near     map[string]bool // ... except to these backends
	crowded  bool            // others probe from the same host meanwhile
	node     bool            // the client is the node, whose every address is its own
	bridged  []string        // pods behind one interface of the node
	sources  []netip.Addr    // of the node, too, at this site
	selfKept bool            // a client that reaches itself may be seen by its own address
	reset    bool            // a refusal may come after the connection was accepted
	// seen is what explain says that each backend sees of the client; nil if it isn't asked.
	seen   map[string]string
	unsaid error // of explain, what it should have said
	// refusable: the plane may refuse what should not be answered
	refusable bool
}

// wantedOf takes the packets' fate from the specification. The case's author
// has agreed with it before (checkVerdict).
func wantedOf(s *Topology, p Probe, e *Expectation, v model.Verdict) wanted {
	w := wanted{outcome: e.Outcome, reach: e.Reach, backends: map[string]bool{}, least: p.Least, most: 20, node: p.From.Name == NodeName, from: p.From.Name}
	w.sources = s.sources()
	if s != nil && s.site != nil {
		w.bridged = s.site.Bridged
	}
	for _, b := range v.Backends() {
		w.backends[backendName(b)] = v.Masquerades(b)
		w.most += 40 * share(b, v.Backends())
	}
	if e.Outcome == Passed {
		bare := s.withoutPlane(p)
		w.outcome, w.reach = bare.Outcome, bare.Reach
		for _, name := range bare.Backends {
			w.backends[name] = false
		}
	}
	w.least = max(w.least, map[Outcome]int{Forwarded: 4, Refused: 2}[w.outcome], 1)
	if w.reach == All {
		w.least = max(w.least, 2*len(w.backends))
	}
	w.most = max(w.most, w.least)
	return w
}

// share is how many connections there are, on average, for one to this backend.
func share(b model.Backend, all []model.Backend) int {
	total := 0
	for _, o := range all {
		total += int(o.Weight)
	}
	return (total + int(b.Weight) - 1) / int(b.Weight)
}

// check sends real packets until the expectation has been met or missed.
func (s *Topology) check(p Probe, w wanted) error {
	seen := map[string]int{}
	for n := 0; n < w.most; n++ {
		if n >= w.least && (w.reach != All || len(seen) == len(w.backends)) {
			return nil
		}
		answer, err := s.once(p, w)
		if err != nil {
			return fmt.Errorf("connection %d: %w", n+1, err)
		}
		if answer.Outcome == Forwarded {
			seen[answer.Backend]++
		}
		if w.reach == One && len(seen) > 1 {
			return fmt.Errorf("connections reached several backends: %v", seen)
		}
	}
	if w.outcome == Forwarded && w.reach == All && len(seen) < len(w.backends) {
		return fmt.Errorf("of the backends %s, %d connections reached only %v", strings.Join(slices.Sorted(maps.Keys(w.backends)), " "), w.most, seen)
	}
	return nil
}

// once makes one connection and holds it against what is wanted.
func (s *Topology) once(p Probe, w wanted) (Answer, error) {
	wait := waitTimeout
	if w.outcome == Silent {
		wait = silence
	}
	// Only of a refused TCP connection does it matter how.
	if p.Proto != model.TCP || w.outcome != Refused || w.crowded {
		answer := s.ask(p, wait)
		return answer, w.judge(answer)
	}
	before, err := s.unreachables(p)
	if err != nil {
		return Answer{}, err
	}
	answer := s.ask(p, wait)
	if err := w.judge(answer); err != nil {
		return answer, err
	}
	after, err := s.unreachables(p)
	if err != nil {
		return Answer{}, err
	}
	if after != before {
		return answer, errors.New("refused by an ICMP error instead of a RST, which costs IPv6 clients a second")
	}
	return answer, nil
}

func (w wanted) judge(a Answer) error {
	if w.unsaid != nil {
		return w.unsaid
	}
	lateRefusal := a.Outcome == Reset && w.outcome == Refused && w.reset
	if a.Outcome != w.outcome && !lateRefusal && (a.Outcome != Refused || !w.refusable) {
		return fmt.Errorf("%s, expected: %s", a, w)
	}
	if a.Outcome != Forwarded {
		return nil
	}
	masqueraded, known := w.backends[a.Backend]
	if !known {
		return fmt.Errorf("%s, expected: %s", a, w)
	}
	if err := w.judgeSeen(a); err != nil {
		return err
	}
	if name, _, _ := strings.Cut(a.Backend, ":"); name == NodeName && a.Client == a.Local {
		return nil // see the package comment
	}
	if w.selfKept && a.Client == a.Local && hosts[w.from].addr(a.Local) == a.Local && strings.HasPrefix(a.Backend, w.from+":") {
		return nil
	}
	return w.judgeSource(a, masqueraded)
}

func (w wanted) judgeSource(a Answer, masqueraded bool) error {
	node := hosts[NodeName]
	byNode := a.Client == node.addr(a.Client) || slices.Contains(w.sources, a.Client)
	switch {
	case masqueraded && !byNode:
		return fmt.Errorf("%s, expected it to see an address of the node (%s)", a, node.addr(a.Local))
	case !masqueraded && a.Client != a.Local && (!byNode || (!w.lenient || w.near[a.Backend]) && !w.node):
		return fmt.Errorf("%s, expected it to see the client's own address", a)
	}
	return nil
}

func (w wanted) String() string {
	if w.outcome != Forwarded {
		return string(w.outcome)
	}
	return fmt.Sprintf("answered by %s", strings.Join(slices.Sorted(maps.Keys(w.backends)), " or "))
}

// keepsSource reports whether some backend must see the client's own address
// although that is not an address of the node.
func (w wanted) keepsSource(from netip.Addr) bool {
	node := hosts[NodeName]
	return from != node.addr(from) && !from.IsLoopback() &&
		slices.Contains(slices.Collect(maps.Values(w.backends)), false)
}
