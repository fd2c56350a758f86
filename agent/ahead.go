package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/internal/ahead"
	"github.com/fairway-net/fairway/model"
)

// Rules of others, or in ebpf mode programs, may take packets before those of Services see
// them: nothing of the agent's is amiss then, and Services don't answer. Nobody tells of such
// rules, so they are read now and then.

// aheadPeriod is how often they are read. Where iptables-legacy has very many rules, reading
// them takes a good part of a second.
const aheadPeriod = 5 * time.Minute

// aheadSoon is when they are read for the first time.
const aheadSoon = 10 * time.Second

// mostConcerned is how many Services are named for each rule.
const mostConcerned = 1000

// watchAhead looks for such rules until ctx is done.
func (a *Agent) watchAhead(ctx context.Context) {
	for pause := aheadSoon; ; pause = aheadPeriod {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		table := a.inForce.Load()
		if table == nil {
			continue
		}
		list, err := whoIsAhead(ctx, a.planes.kindOf(a.Mode()), table)
		if err != nil {
			a.config.Log.Debug("not known whether rules of others come before those of Services", "error", err)
		}
		a.reportAhead(list)
	}
}

// whoIsAhead are the rules or programs of others that come before those of a mode.
func whoIsAhead(ctx context.Context, kind dataplane.Kind, table *model.Table) ([]agentlink.Ahead, error) {
	if kind.Ahead == nil {
		rules, err := ahead.Read(ctx)
		return concerned(rules, table), err
	}
	list := []agentlink.Ahead{}
	programs, err := kind.Ahead()
	for _, name := range programs {
		list = append(list, agentlink.Ahead{What: "the program " + name + " sees packets and may keep them", Services: []string{}, More: true})
	}
	return list, err
}

// concerned are the rules that take packets of frontends, each with their Services.
func concerned(rules []ahead.Rule, table *model.Table) []agentlink.Ahead {
	list := []agentlink.Ahead{}
	for _, r := range rules {
		services := map[string]bool{}
		for f := range table.Frontends() {
			if r.Takes(f, table.Settings) {
				services[compile.ServiceOf(f.Name).String()] = true
			}
		}
		what := r.String()
		if len(services) == 0 || slices.ContainsFunc(list, func(o agentlink.Ahead) bool { return o.What == what }) {
			continue
		}
		names := make([]string, 0, len(services))
		for name := range services {
			names = append(names, name)
		}
		slices.Sort(names)
		list = append(list, agentlink.Ahead{What: what, Services: names[:min(len(names), mostConcerned)], More: len(names) > mostConcerned})
	}
	return list
}

// reportAhead keeps the rules for questions about them, and says in the log and in an Event which are new.
func (a *Agent) reportAhead(list []agentlink.Ahead) {
	before := a.toldAhead.Swap(&list)
	for _, one := range list {
		if before != nil && slices.ContainsFunc(*before, func(o agentlink.Ahead) bool { return o.What == one.What }) {
			continue
		}
		const few = 3
		names := strings.Join(one.Services[:min(len(one.Services), few)], ", ")
		switch {
		case len(one.Services) == 0:
			names = "Services"
		case len(one.Services) > few || one.More:
			names += " and others"
		}
		a.config.Log.Warn("a rule of somebody else's comes before those of Services, which may not answer", "reason", one.What, "services", names)
		a.events.ReportNode(reasonAhead, fmt.Sprintf("%s, before they come to %s", one.What, names))
	}
}
