package model

import "fmt"

// Step is a rule that was tried for a request.
type Step struct {
	Host *Host
	Rule *Rule
	Why  string // it doesn't match; "" if it does
}

// Trace lists the rules that [Socket.Decide] tries, in their order, up to the
// first that matches.
func (s *Socket) Trace(r *Request) []Step {
	l := s.Listener(r.Host)
	if l == nil {
		return nil
	}
	var steps []Step
	l.hosts.each(r.Host, s.OneLabel, func(h *Host) bool {
		for _, rule := range h.Rules {
			why := rule.Match.Mismatch(r)
			steps = append(steps, Step{h, rule, why})
			if why == "" {
				return true
			}
		}
		return false
	})
	return steps
}

// Mismatch says which part of the match a request doesn't have; "" if it has all.
func (m *Match) Mismatch(r *Request) string {
	switch {
	case !m.matchesPath(r.Path):
		return "the path is " + r.Path
	case m.Method != "" && m.Method != r.Method:
		return "the method is " + r.Method
	}
	for i := range m.Headers {
		if h := &m.Headers[i]; !h.matchesHeader(r) {
			return fmt.Sprintf("header %s is %q", h.Name, r.Header[h.Name])
		}
	}
	for i := range m.Query {
		if q := &m.Query[i]; !r.has(q) {
			return fmt.Sprintf("query parameter %s is %q", q.Name, r.query()[q.Name])
		}
	}
	return ""
}

// has compares the first value of a query parameter.
func (r *Request) has(q *ValueMatch) bool {
	values, given := r.query()[q.Name]
	return given && q.matches(values[0])
}
