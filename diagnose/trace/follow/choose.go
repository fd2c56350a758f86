package follow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/model"
)

// mostNodesNamed is how many nodes are named of which one must be chosen.
const mostNodesNamed = 10

// prepare finds out what is asked for: which packets, on which node.
func (t *tracer) prepare(ctx context.Context) (err error) {
	var unnamed string
	if t.objects, err = t.request.Source.Read(ctx); err != nil {
		if t.question.Target.Name != "" || t.question.From.Name != "" {
			return err
		}
		t.objects, unnamed = &explain.Objects{}, fmt.Sprintf("names of addresses: %v", err)
	}
	if why := t.objects.NoAPI; why != "" {
		unnamed = "the API: " + why + "; this is what agents have in force"
	}
	service := t.objects.Of(t.question.Target)
	if service == nil && t.question.Target.Name != "" {
		return fmt.Errorf("there is no Service %s/%s", t.question.Target.Namespace, t.question.Target.Name)
	}
	t.keys = t.question.Target.Keys(service, t.question.From)
	if len(t.keys) == 0 {
		return fmt.Errorf("%q has no address and port to connect to", t.question.Typed)
	}
	if t.question.From, err = t.objects.Locate(t.question.From, t.keys[0].Addr.Is6()); err != nil {
		return err
	}
	if t.question.From.Kind == "pod" && !t.question.From.Addr.IsValid() {
		return fmt.Errorf("--from: the address of %s isn't known; give the address", t.question.From)
	}
	if t.keys = sameFamily(t.keys, t.question.From); len(t.keys) == 0 {
		return fmt.Errorf("%s has no address of the address family of %s", t.question.From, t.question.Typed)
	}
	if err := t.choose(ctx); err != nil {
		return err
	}
	if unnamed != "" {
		t.report.NotChecked = append(t.report.NotChecked, unnamed)
	}
	return t.decide(ctx)
}

// sameFamily are the keys of the source's address family: all if its address isn't
// known.
func sameFamily(keys []model.Key, from explain.Source) []model.Key {
	if !from.Addr.IsValid() || from.Kind == "node" { // nodes have addresses of both, as far as the cluster does
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k model.Key) bool { return k.Addr.Is6() != from.Addr.Is6() })
}

// decide asks the agent what it makes of the connection. Without an agent, the trace
// goes on.
func (t *tracer) decide(ctx context.Context) error {
	if t.agent == nil {
		return nil
	}
	view, err := t.agent.Decide(ctx, t.keys, t.question.From)
	if err != nil {
		t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("what the agent has in force: %v", err))
		return nil //nolint:nilerr // it is said
	}
	t.view = view
	return nil
}

// choose finds the agent of the node to watch, and the node's network namespace.
func (t *tracer) choose(ctx context.Context) error {
	name := t.request.Node
	if name == "" {
		name = t.question.From.Node
	}
	var answering []agentlink.Found
	all := t.request.Source.Agents(ctx, "")
	missing := agentlink.Missing(all)
	for _, a := range all {
		if a.Err == nil && (name == "" || a.Status.Node == name) {
			answering = append(answering, a)
		}
	}
	if here := slices.DeleteFunc(slices.Clone(answering), func(a agentlink.Found) bool { return !a.IsLocal() }); name == "" && len(here) == 1 {
		answering = here // this machine, unless another is named
	}
	switch {
	case len(answering) == 1:
		t.agent = &answering[0]
		if !t.isElsewhere() && t.request.NotRoot != nil {
			return t.request.NotRoot
		}
		t.report = trace.New(t.question, t.agent.Status.Node, planeOf(*t.agent))
		t.others = t.hops(all)
		t.report.NotChecked = append(t.report.NotChecked, missing...)
		return t.enter()
	case len(answering) > 1:
		var names []string
		for _, a := range answering {
			names = append(names, a.Status.Node)
		}
		if len(names) > mostNodesNamed {
			names = append(names[:mostNodesNamed], "...")
		}
		return fmt.Errorf("--node: must be one of %s", strings.Join(names, ", "))
	case name != "" && !collect.IsHere(t.objects, name):
		return fmt.Errorf("no agent of node %s answers%s: run fairway trace there", name, agentlink.Because(missing))
	case t.request.NotRoot != nil:
		return fmt.Errorf("no agent answers%s, and %w", agentlink.Because(missing), t.request.NotRoot)
	}
	t.report = trace.New(t.question, name, trace.Plane{})
	t.report.NotChecked = append(t.report.NotChecked, "the data plane: no agent answers on this machine")
	return t.enter()
}
