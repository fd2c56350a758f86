// Package examine gathers the evidence that doctor judges, and what explain is made from: from
// the API or manifests, from the agents of nodes, and from this machine.
package examine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/host"
)

// Examiner examines Services and machines.
type Examiner struct {
	Source  *collect.Source
	From    string // the client, as typed; "" for anybody
	Node    string // that the packet reaches; "" for any
	Domain  string // of the cluster's names
	Compile compile.Config
}

// Machine examines this machine, or, where nodes' agents answer and it is none of them, those
// nodes; with Node, that one.
func (x *Examiner) Machine(ctx context.Context) (*doctor.Report, error) {
	if len(x.Source.Files) > 0 {
		return x.bundled(ctx)
	}
	e := &doctor.Evidence{Domain: x.Domain}
	agents := x.Source.AgentsHere(ctx)
	if there := x.elsewhere(ctx, agents); there != nil {
		agents = there
	}
	if x.Node != "" {
		agents = slices.DeleteFunc(agents, func(a agentlink.Found) bool { return a.Name() != x.Node })
		if len(agents) == 0 {
			return nil, fmt.Errorf("--node: no agent of a node %q answers: run fairway doctor there", x.Node)
		}
	}
	answering := slices.DeleteFunc(slices.Clone(agents), func(a agentlink.Found) bool { return a.Err != nil })
	if n := len(answering) - mostLooked; n > 0 {
		e.NotAsked, answering = append(e.NotAsked, fmt.Sprintf("%d more nodes: --node", n)), answering[:mostLooked]
	}
	e.Nodes = look(ctx, answering)
	if len(e.Nodes) == 0 && x.Node == "" {
		e.Nodes = []doctor.Node{{Host: host.Read(ctx)}}
	}
	x.askAgents(ctx, e, func() []agentlink.Found { return agents })
	return doctor.Examine(ctx, e), nil
}

// bundled examines the nodes of a bundle, or Node of them.
func (x *Examiner) bundled(ctx context.Context) (*doctor.Report, error) {
	if _, err := x.Source.ReadEvery(ctx, ""); err != nil {
		return nil, err
	}
	e := &doctor.Evidence{Domain: x.Domain}
	x.addBundle(e)
	switch {
	case x.Source.Bundle() == nil:
		return nil, errors.New("--node: manifests say nothing of nodes: leave it out, and all their Services are examined")
	case len(e.Nodes) == 0:
		return nil, fmt.Errorf("--node: the bundle has no facts of a node %q", x.Node)
	}
	return doctor.Examine(ctx, e), nil
}

// elsewhere are the agents of all nodes, where one is asked for or this machine is no node; nil
// where this machine is meant.
func (x *Examiner) elsewhere(ctx context.Context, here []agentlink.Found) []agentlink.Found {
	if x.Node == "" && len(here) > 0 {
		return nil
	}
	all := x.Source.Agents(ctx, x.Node)
	if len(all) == 0 && x.Node == "" {
		return nil
	}
	return all
}

// Service examines a Service: what was typed is svc/NAME or an address. Every node that a packet
// may pass is looked at.
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
	e.NoNodes = x.noNodes()
	e.Question = q
	e.Service = e.Objects.Of(q.Target)
	find := sync.OnceValue(func() []agentlink.Found { return x.Source.Agents(ctx, "") })
	collect.AddNodes(e.Objects, find)
	if e.Report, err = explain.FromObjects(q, e.Objects, x.Compile, x.Source.Asker(ctx, find)); err != nil {
		return nil, err
	}
	x.askAgents(ctx, e, find)
	if e.NoNodes == "" {
		x.lookAtNodes(ctx, e, find())
		resolvers(e)
		announced(ctx, e, find())
	}
	x.addBundle(e)
	if e.Service != nil && len(e.Report.Views) > 0 {
		x.readFlows(ctx, e, find())
	}
	e.Scaled = x.Source.Scaled(ctx, e.Objects, e.Service)
	return doctor.Examine(ctx, e), nil
}

// noNodes says why no node can be looked at: the question is about manifests.
func (x *Examiner) noNodes() string {
	if len(x.Source.Files) > 0 {
		return "the question is about manifests"
	}
	return ""
}
