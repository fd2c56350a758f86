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

// staleFlowAge is the time between two readings of flows. A flow counts as stale only if
// both have it: an agent deletes the flows to an endpoint that is gone, but it does so a
// moment later.
const staleFlowAge = time.Second

// readFlows adds to the evidence the flows to the Service that lead to none of its
// endpoints. It reads them on the nodes whose agents answer, from conntrack or from the data
// plane's own table.
func (x *Examiner) readFlows(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) {
	frontends := map[string]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			frontends[d.Frontend] = true
		}
	}
	staleFlows := func(a agentlink.Found) ([]doctor.Flow, error) { return flowsOf(ctx, a, frontends, e.Report) }
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
		list, err := staleFlows(a)
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
	case <-time.After(staleFlowAge):
	}
	for _, a := range asked {
		list, err := staleFlows(a)
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
func flowsOf(ctx context.Context, agent agentlink.Found, frontends map[string]bool, r *explain.Report) (list []doctor.Flow, err error) {
	good := r.Taking()
	err = agent.Flows(ctx, false, flow.Listener{
		Note: func(string) {},
		Event: func(e flow.Event) {
			front := e.Frontend.String() + "/" + e.Proto.String()
			if frontends[front] && !good[e.Backend] && len(list) < mostFlows {
				list = append(list, doctor.Flow{Node: agent.Status.Node, Proto: e.Proto.String(), Client: e.Client, Frontend: e.Frontend, Backend: e.Backend})
			}
		},
	})
	return list, err
}
