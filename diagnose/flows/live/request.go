package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/flows"
)

// Request asks for the connections of nodes.
type Request struct {
	Source *collect.Source
	Node   string // "" for all nodes
	Follow bool   // those that begin and end; else those that there are
	// Names are those of addresses; nil for what Source says at the beginning.
	Names func() flows.Names
	Begin func()                   // called before the first record, unless it is nil
	Tell  func(flows.Record) error // an error ends it
	Note  func(string)             // told of what is missing
}

// Run tells of connections: until ctx is done if they are followed. A Service that no node
// knows is noted, unless it is "".
func (r Request) Run(ctx context.Context, service string) error {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	if r.Names == nil {
		names := r.names(ctx)
		r.Names = func() flows.Names { return names }
	}
	if r.Begin != nil {
		r.Begin()
	}
	tellers := make([]*teller, len(nodes))
	for i, agent := range nodes {
		tellers[i] = &teller{agent: agent, names: r.Names, follows: r.Follow, tell: r.Tell, note: r.Note}
	}
	failed := make([]error, len(nodes))
	agentlink.Each(ctx, nodes, func(i int) { failed[i] = tellers[i].readTable(ctx) })
	if service != "" && !slices.ContainsFunc(tellers, func(t *teller) bool { return t.knows(service) }) {
		r.Note(fmt.Sprintf("no node that answers has a Service %s in force", service))
	}
	var group sync.WaitGroup
	for i, t := range tellers {
		if failed[i] == nil {
			group.Go(func() { failed[i] = t.run(ctx) })
		}
	}
	group.Wait()
	return errors.Join(failed...)
}

// names are those of addresses, as far as they can be read.
func (r Request) names(ctx context.Context) flows.Names {
	objects, err := r.Source.Read(ctx)
	if err != nil {
		r.Note(fmt.Sprintf("addresses have no names: %v", err))
		return flows.Names{}
	}
	if objects.NoAPI != "" {
		r.Note("addresses of pods have no names: " + objects.NoAPI)
	}
	return flows.NamesOf(objects)
}

// nodes are the agents whose nodes' connections can be read. Those that don't answer are
// noted.
func (r Request) nodes(ctx context.Context) ([]agentlink.Found, error) {
	var list []agentlink.Found
	all := r.Source.Agents(ctx, r.Node)
	for _, line := range agentlink.Missing(all) {
		r.Note(line)
	}
	for _, a := range all {
		if a.Err == nil && (r.Node == "" || a.Status.Node == r.Node) {
			list = append(list, a)
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case r.Node != "":
		return nil, fmt.Errorf("--node: no agent of a node %q answers", r.Node)
	}
	return nil, errors.New("no agent answers")
}
