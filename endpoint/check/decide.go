package check

import (
	"net/netip"
	"strings"
)

// Vote is what one node found of an endpoint.
type Vote struct {
	Node string
	Verdict
}

// Decide counts the votes of the nodes that are to check an endpoint. Without a
// majority among those who voted, the endpoint stays what it was; one of which
// nothing was known stays so.
func Decide(was Health, checkers []string, votes []Vote) Verdict {
	healthy, unhealthy := 0, 0
	var reasons, by []string
	for _, name := range checkers {
		for _, v := range votes {
			switch {
			case v.Node != name:
			case v.Health == Healthy:
				healthy++
			case v.Health == Unhealthy:
				unhealthy++
				by = append(by, v.Node)
				if v.Reason != "" && (len(reasons) == 0 || reasons[0] != v.Reason) {
					reasons = append(reasons, v.Reason)
				}
			}
		}
	}
	switch {
	case healthy > unhealthy:
		return Verdict{Health: Healthy}
	case unhealthy > healthy:
		return Verdict{Health: Unhealthy, Reason: strings.Join(reasons, ", ") + " (seen from " + strings.Join(by, ", ") + ")"}
	}
	return Verdict{Health: was}
}

// Votes are all that nodes have found of a Service's endpoints.
type Votes map[netip.AddrPort][]Vote

// Add adds a node's findings.
func (v Votes) Add(node string, findings []Finding) {
	for _, f := range findings {
		v[f.Addr] = append(v[f.Addr], Vote{Node: node, Verdict: f.Verdict})
	}
}
