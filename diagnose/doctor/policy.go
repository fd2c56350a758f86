package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// The reasons of decisions that the checks know.
const (
	reasonNoEndpoint = "the Service port has no endpoint to use"
	reasonSource     = "the source address is not in the allowed ranges"
)

// checkPolicies finds FW113 and FW114: packets that die since a traffic policy
// is Local and the node has no endpoint. That is as it should be where other
// nodes of those asked serve the address.
func checkPolicies(_ context.Context, e *Evidence) []Finding {
	servedBySome := map[string]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			servedBySome[d.Frontend+d.Origin] = servedBySome[d.Frontend+d.Origin] || served(d.Action)
		}
	}
	var lost []loss
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			local := slices.ContainsFunc(d.Candidates, func(c explain.CandidateShare) bool { return c.Why == compile.NotLocal.String() })
			if served(d.Action) || d.Reason != reasonNoEndpoint || !local {
				continue
			}
			l := loss{code: NoLocalEndpointInside, grade: Proved, frontends: d.Frontend, nodes: []string{v.Node}, origins: d.Origin}
			if d.FrontendType != "cluster IP" {
				l.code = NoLocalEndpointOutside
			}
			if servedBySome[d.Frontend+d.Origin] {
				l.grade = Note
			}
			lost = append(lost, l)
		}
	}
	return findingsOf(lost)
}

// loss is packets that die on nodes without an endpoint.
type loss struct {
	code      Code
	grade     Grade
	frontends string
	origins   string
	nodes     []string
}

// findingsOf are findings of losses, each said once: of all nodes and frontends of which it is true.
func findingsOf(lost []loss) []Finding {
	lost = merged(lost, func(l *loss) *string { return &l.origins }, " or ")
	var byNodes []loss
	for _, l := range lost {
		i := slices.IndexFunc(byNodes, func(o loss) bool {
			return o.code == l.code && o.grade == l.grade && o.frontends == l.frontends && o.origins == l.origins
		})
		if i < 0 {
			byNodes = append(byNodes, l)
			continue
		}
		byNodes[i].nodes = append(byNodes[i].nodes, l.nodes...)
	}
	var list []Finding
	for _, l := range merged(byNodes, func(l *loss) *string { return &l.frontends }, ", ") {
		list = append(list, Finding{Code: l.code, Grade: l.grade, Of: l.nodes,
			What: fmt.Sprintf("%s: no endpoint on the node is ready, and packets from %s may go to no other", l.frontends, l.origins)})
	}
	return list
}

// merged makes one of losses that differ in one part only, whose texts are joined.
func merged(lost []loss, part func(*loss) *string, by string) (list []loss) {
	parts := map[string][]string{} // by what the others have in common
	key := func(l loss) string {
		*part(&l) = ""
		return fmt.Sprint(l)
	}
	for _, l := range lost {
		k := key(l)
		if parts[k] == nil {
			list = append(list, l)
		}
		if text := *part(&l); !slices.Contains(parts[k], text) {
			parts[k] = append(parts[k], text)
		}
	}
	for i := range list {
		*part(&list[i]) = strings.Join(parts[key(list[i])], by)
	}
	return list
}

// checkSources finds FW115.
func checkSources(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			if d.Reason == reasonSource {
				list = append(list, Finding{Code: ClientOutOfRanges, Grade: Proved, What: fmt.Sprintf("%s lets in %s only, and the client is %s", d.Frontend, strings.Trim(fmt.Sprint(d.Sources), "[]"), d.Source)})
			}
		}
	}
	return slices.CompactFunc(list, func(a, b Finding) bool { return a.same(b) })
}

// checkConflicts finds FW130.
func checkConflicts(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, p := range e.Report.Problems {
		if p.Reason == compile.ReasonConflict && p.Service.Name == e.Service.Name && p.Service.Namespace == e.Service.Namespace {
			list = append(list, Finding{Code: AddressClaimedTwice, Grade: Proved, What: p.Message})
		}
	}
	return list
}
