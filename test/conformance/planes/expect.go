package planes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/model"
)

// Expectation is what is written behind the arrow of a step.
type Expectation struct {
	Outcome  Outcome
	Reach    Reach
	Backends []string // "a", or "a:8080" where the port matters
	Source   Source
}

// Outcome is what becomes of a connection or datagram.
type Outcome string

// The outcomes that a case can expect.
const (
	Forwarded Outcome = "forwarded" // answered by one of the backends
	Refused   Outcome = "refused"
	Silent    Outcome = "silent"
	Passed    Outcome = "pass"  // no Service traffic: whatever happens without a plane
	Same      Outcome = "same"  // of a flow: answered by the backend it had before
	Reset     Outcome = "reset" // of a flow: the connection is reset
)

// Reach says how many of the backends are reached by repeated connections.
type Reach string

// The reaches: every one of the backends in time, always one and the same of
// them, or just none but them.
const (
	All  Reach = "all"
	One  Reach = "one of"
	Some Reach = "some of"
)

// Source is what the backend sees of the client.
type Source string

// The sources.
const (
	AnySource   Source = ""
	Kept        Source = "source kept"
	Masqueraded Source = "masqueraded"
)

func parseExpectation(text string) (*Expectation, error) {
	text = strings.Join(strings.Fields(text), " ")
	switch o := Outcome(text); o {
	case Refused, Silent, Passed, Same, Reset:
		return &Expectation{Outcome: o}, nil
	}
	e := &Expectation{Outcome: Forwarded, Reach: All}
	text, source, _ := strings.Cut(text, ", ")
	e.Source = Source(source)
	if !slices.Contains([]Source{AnySource, Kept, Masqueraded}, e.Source) {
		return nil, fmt.Errorf("expectation: %q must be %q or %q", source, Kept, Masqueraded)
	}
	for _, r := range []Reach{One, Some} {
		if rest, ok := strings.CutPrefix(text, string(r)+" "); ok {
			e.Reach, text = r, rest
		}
	}
	e.Backends = strings.Fields(text)
	if len(e.Backends) == 0 {
		return nil, fmt.Errorf("expectation: empty")
	}
	for _, b := range e.Backends {
		name, port, hasPort := strings.Cut(b, ":")
		if _, known := hosts[name]; !known {
			return nil, fmt.Errorf("expectation: %q is no outcome (%s, %s, %s; of a flow %s, %s) and no host", b, Refused, Silent, Passed, Same, Reset)
		}
		if hasPort {
			if _, err := parsePort(port); err != nil {
				return nil, fmt.Errorf("expectation: %q: %w", b, err)
			}
		}
	}
	return e, nil
}

// checkVerdict compares what a case's author expects with what the
// specification says, before any packet is sent.
func (e *Expectation) checkVerdict(v model.Verdict) error {
	want := map[Outcome]model.Action{Forwarded: model.Forward, Refused: model.Refuse, Silent: model.Discard, Passed: model.Pass}[e.Outcome]
	if v.Action != want {
		return fmt.Errorf("the case expects %q, but the table says %s from %s: %s", e.Outcome, v.Action, v.Origin, v.Reason)
	}
	if want != model.Forward {
		return nil
	}
	if err := e.checkBackends(v.Backends()); err != nil {
		return err
	}
	if e.Reach == One && v.Pool.Affinity == 0 && len(v.Backends()) > 1 && v.Pool.Scheduler == model.DefaultScheduler {
		return fmt.Errorf("the case expects one of several backends, but pool %s has no affinity", v.Pool.ID)
	}
	return e.checkSource(v)
}

func (e *Expectation) checkBackends(backends []model.Backend) error {
	unmatched := slices.Clone(e.Backends)
	var names []string
	for _, b := range backends {
		name := backendName(b)
		names = append(names, name)
		i := slices.IndexFunc(e.Backends, func(want string) bool { return matches(want, name) })
		if i < 0 {
			return fmt.Errorf("the case expects %s, but the table's backends are %s (at %s)", strings.Join(e.Backends, " "), strings.Join(names, " "), b.AddrPort())
		}
		unmatched = slices.DeleteFunc(unmatched, func(want string) bool { return matches(want, name) })
	}
	if len(unmatched) > 0 {
		return fmt.Errorf("the case expects %s, but the table's backends are only %s", strings.Join(e.Backends, " "), strings.Join(names, " "))
	}
	return nil
}

// checkSource counts a pod that reaches itself as masqueraded only if there is
// no other backend: hairpin goes without saying in cases.
func (e *Expectation) checkSource(v model.Verdict) error {
	says := Kept
	others := slices.ContainsFunc(v.Backends(), func(b model.Backend) bool { return b.Addr != v.Src })
	if v.Masquerade || !others {
		says = Masqueraded
	}
	if e.Source != AnySource && e.Source != says {
		return fmt.Errorf("the case expects %q, but the table says %q from %s", e.Source, says, v.Origin)
	}
	return nil
}

// matches reports whether the backend "a:8080" is the expected "a" or "a:8080".
func matches(want, backend string) bool {
	name, _, _ := strings.Cut(backend, ":")
	return want == backend || want == name
}
