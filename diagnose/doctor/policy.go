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
	var list []Finding
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			local := slices.ContainsFunc(d.Candidates, func(c explain.CandidateShare) bool { return c.Why == compile.NotLocal.String() })
			if served(d.Action) || d.Reason != reasonNoEndpoint || !local {
				continue
			}
			f := Finding{Code: NoLocalEndpointInside, Grade: Proved, What: fmt.Sprintf("%s on %s: no endpoint there is ready, and packets from %s may go to no other", d.Frontend, v.Node, d.Origin)}
			if d.Entrance != "cluster IP" {
				f.Code = NoLocalEndpointOutside
			}
			if servedBySome[d.Frontend+d.Origin] {
				f.Grade = Note
			}
			if !slices.ContainsFunc(list, f.same) {
				list = append(list, f)
			}
		}
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
