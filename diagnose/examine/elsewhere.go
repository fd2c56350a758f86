package examine

import (
	"cmp"
	"context"
	"slices"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/host"
	"github.com/fairway-net/fairway/diagnose/probe"
	"github.com/fairway-net/fairway/internal/netns"
)

// byAgent has an agent on another machine take it.
func (x *Examiner) byAgent(ctx context.Context, e *doctor.Evidence, agent agentlink.Found) error {
	facts, err := agent.Host(ctx)
	if err != nil {
		e.NotHere = err.Error()
		return nil //nolint:nilerr // the report says so
	}
	e.HostNode = agent.Name()
	e.NotHere, e.Host, e.Probe = "", facts, agentlink.Prober{Client: agent.Client}
	return nil
}

// elsewhere has the machine's side of the evidence taken in the network namespace of
// an agent of this machine, such as a node of a lab, or by an agent elsewhere: of the node that is asked
// about, or of the first. Where there is none, the report says that it wasn't
// looked at.
func (x *Examiner) elsewhere(ctx context.Context, e *doctor.Evidence, agents []agentlink.Found) error {
	name := cmp.Or(x.Node, e.Report.From.Node)
	i := slices.IndexFunc(agents, func(a agentlink.Found) bool {
		return a.Err == nil && (name == "" || a.Status.Node == name)
	})
	if i < 0 {
		return nil
	}
	if !agents[i].IsLocal() {
		return x.byAgent(ctx, e, agents[i])
	}
	ns, err := netns.OfProcess(agents[i].Status.PID)
	if err != nil {
		return nil //nolint:nilerr // it may not be entered: NotHere says that the machine wasn't looked at
	}
	e.HostNode = agents[i].Name()
	e.NotHere, e.Probe = "", probe.Prober{NS: ns} // open until the process ends
	return ns.Do(func() error {
		e.Host = host.Read(ctx)
		return nil
	})
}
