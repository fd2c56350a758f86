package examine

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/doctor"
)

// askAgents adds what the agents of this machine say to the evidence, and, for a
// Service, whether their kernels hold what they should.
func (x *Examiner) askAgents(ctx context.Context, e *doctor.Evidence, find func() []agentlink.Found) {
	if len(x.Source.Files) > 0 {
		return
	}
	agents := find()
	if len(agents) == 0 && e.Service != nil {
		e.NoAgents = "no agent answers"
	}
	e.NotAsked = agentlink.Missing(agents)
	kernels := make([]*doctor.Kernel, len(agents))
	agentlink.Each(ctx, agents, func(i int) {
		if a := agents[i]; a.Err == nil && e.Service != nil {
			k := kernelFacts(ctx, a, e)
			kernels[i] = &k
		}
	})
	for i, a := range agents {
		if a.Err == nil || isDead(a) {
			e.Agents = append(e.Agents, agentFacts(a, e))
		}
		if kernels[i] != nil {
			e.Kernel = append(e.Kernel, *kernels[i])
		}
	}
}

// isDead reports whether nobody answers where an agent should, rather than that it
// can't be asked from here.
func isDead(a agentlink.Found) bool {
	if errors.Is(a.Err, fs.ErrPermission) {
		return false
	}
	return a.IsLocal() || strings.Contains(a.Err.Error(), "connection refused") || strings.Contains(a.Err.Error(), "no such file or directory")
}

// agentFacts are what is known of an agent.
func agentFacts(found agentlink.Found, e *doctor.Evidence) doctor.Agent {
	s := found.Status
	a := doctor.Agent{Node: found.Name(), Away: time.Duration(s.APIAway * float64(time.Second))}
	if found.Err != nil {
		a.Err = found.Err.Error()
		return a
	}
	a.KubeProxyNames = len(compare.KindOf(found).KubeProxyModes) > 0
	for _, d := range s.Drivers {
		if !d.XDP {
			a.NoXDP = append(a.NoXDP, d.Interface+": "+d.Why)
		}
	}
	if !s.Waiting.IsZero() {
		a.Waiting = time.Since(s.Waiting)
	}
	for _, l := range s.LeftOut {
		if e.Service == nil || l.Name == "" || l.Name == e.Service.Namespace+"/"+e.Service.Name {
			a.LeftOut = append(a.LeftOut, l.What)
		}
	}
	for _, rule := range s.Ahead {
		if e.Service == nil || rule.More || slices.Contains(rule.Services, e.Service.Namespace+"/"+e.Service.Name) {
			a.Ahead = append(a.Ahead, rule.What)
		}
	}
	return a
}

// kernelFacts compares the kernel of an agent's node for one Service: by the
// command dump, which can enter another network namespace.
func kernelFacts(ctx context.Context, agent agentlink.Found, e *doctor.Evidence) doctor.Kernel {
	k := doctor.Kernel{Node: agent.Status.Node, Mode: agent.Status.Mode}
	report, err := compare.Service(ctx, agent, e.Service.Namespace, e.Service.Name)
	if err != nil {
		k.Err = err.Error()
		return k
	}
	k.Objects = len(report.Lines)
	for _, l := range report.Differences() {
		k.Differences = append(k.Differences, l.State+" "+l.String())
	}
	return k
}
