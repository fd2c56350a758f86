// Package examine gathers the evidence that doctor judges, and what explain is made from: from
// the API or manifests, from the agents of nodes, and from this machine.
package examine

import (
	"cmp"
	"context"
	"sync"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/host"
	"github.com/fairway-net/fairway/diagnose/probe"
)

// Examiner examines Services and machines.
type Examiner struct {
	Source  *collect.Source
	From    string // the client, as typed; "" for anybody
	Node    string // that the packet reaches; "" for any
	Domain  string // of the cluster's names
	Compile compile.Config
}

// Machine examines this machine, and what its own agent says.
func (x *Examiner) Machine(ctx context.Context) *doctor.Report {
	e := &doctor.Evidence{Domain: x.Domain, Host: host.Read(ctx)}
	x.askAgents(ctx, e, func() []agentlink.Found { return x.Source.AgentsHere(ctx) })
	return doctor.Examine(ctx, e)
}

// Service examines a Service: what was typed is svc/NAME or an address. This machine is looked
// at if it is a node of the cluster.
func (x *Examiner) Service(ctx context.Context, typed string) (*doctor.Report, error) {
	e := &doctor.Evidence{Domain: x.Domain}
	q, err := explain.ParseQuestion(typed, x.From, x.Source.Namespace)
	if err != nil {
		return nil, err
	}
	q.Node = x.Node
	if e.Objects, err = x.Source.ReadAll(ctx, q); err != nil {
		return nil, err
	}
	e.NotHere = x.notHere(e.Objects)
	e.Question = q
	e.Service = e.Objects.Of(q.Target)
	find := sync.OnceValue(func() []agentlink.Found { return x.Source.Agents(ctx, collect.NodeOf(q, e.Objects)) })
	collect.AddNodes(e.Objects, find)
	if e.Report, err = explain.FromObjects(q, e.Objects, x.Compile, x.Source.Asker(ctx, find)); err != nil {
		return nil, err
	}
	if on := cmp.Or(x.Node, e.Report.From.Node); e.NotHere == "" && (on == "" || collect.IsHere(e.Objects, on)) {
		e.Host, e.Probe = host.Read(ctx), probe.Prober{}
	} else if err := x.elsewhere(ctx, e, find()); err != nil {
		return nil, err
	}
	if from := e.Report.From; from.Kind == "pod" && !hostNetwork(e.Objects, from) {
		if p, ok := e.Probe.(agentlink.LocalProber); ok {
			e.Client = &doctor.Client{Resolvers: p.Resolvers(from.Addr)}
		}
	}
	x.askAgents(ctx, e, find)
	if e.Service != nil && len(e.Report.Views) > 0 {
		x.readFlows(ctx, e, find())
	}
	return doctor.Examine(ctx, e), nil
}

// hostNetwork reports whether a pod is on its node's network, where the processes of
// many pods are.
func hostNetwork(o *explain.Objects, pod explain.Source) bool {
	p := o.Pod(pod.Namespace, pod.Name)
	return p == nil || p.Spec.HostNetwork
}

// notHere says why this machine can't stand for a node: the question is about
// manifests, or the machine has no address of a node.
func (x *Examiner) notHere(o *explain.Objects) string {
	switch {
	case len(x.Source.Files) > 0:
		return "the question is about manifests"
	case !collect.IsHere(o, ""):
		return "this machine is no node of the cluster; run doctor on one"
	}
	return ""
}
