package examine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/flow"
)

// twiceAfter is how long a flow must be there to count: a change of endpoints has
// agents forget flows at once, though not in the same moment.
const twiceAfter = time.Second

// readFlows adds the flows to the Service that the data planes of agents' nodes hold, in
// conntrack or of their own, and still hold a second later.
func (x *Examiner) readFlows(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) {
	fronts := map[string]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			fronts[d.Frontend] = true
		}
	}
	suspects := func(a agentlink.Found) ([]doctor.Flow, error) { return flowsOf(ctx, a, fronts, e.Report) }
	var asked []agentlink.Found
	for _, a := range agents {
		if a.Err == nil && (x.Node == "" || x.Node == a.Status.Node) {
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		e.NoFlows = "no agent answers"
		return
	}
	first := map[string][]doctor.Flow{}
	for _, a := range asked {
		list, err := suspects(a)
		if err != nil {
			e.NoFlows = fmt.Sprintf("%s: %v", a.Status.Node, err)
			return
		}
		if len(list) > 0 {
			first[a.Status.Node] = list
		}
	}
	if len(first) == 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(twiceAfter):
	}
	for _, a := range asked {
		list, err := suspects(a)
		if err != nil {
			e.NoFlows = fmt.Sprintf("%s: %v", a.Status.Node, err)
			return
		}
		for _, flow := range list {
			if slices.Contains(first[a.Status.Node], flow) {
				e.Flows = append(e.Flows, flow)
			}
		}
	}
}

// mostFlows is how many flows of a node are kept.
const mostFlows = 1000

// flowsOf lists the flows to some frontends that lead to none of the report's
// endpoints.
func flowsOf(ctx context.Context, agent agentlink.Found, fronts map[string]bool, r *explain.Report) (list []doctor.Flow, err error) {
	good := r.Taking()
	err = agent.Flows(ctx, false, flow.Listener{
		Note: func(string) {},
		Event: func(e flow.Event) {
			front := e.Frontend.String() + "/" + e.Proto.String()
			if fronts[front] && !good[e.Backend] && len(list) < mostFlows {
				list = append(list, doctor.Flow{Node: agent.Status.Node, Proto: e.Proto.String(), Client: e.Client, Frontend: e.Frontend, Backend: e.Backend})
			}
		},
	})
	return list, err
}
