package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fairway-net/fairway/diagnose/agentlink"
)

// Changes is a page of the latest changes.
type Changes struct {
	header
	Found   int      `json:"found"`
	Offset  int      `json:"offset"`
	Changes []Change `json:"changes"`
	// NotTold says why there are no times of nodes; "" if some are.
	NotTold string `json:"notTold,omitempty"`
}

// changes answers GET /api/v1/changes?q=&offset=&limit=.
func (p *Page) changes(w http.ResponseWriter, r *http.Request) {
	offset, limit, err := pageOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	times := p.propagation(r.Context())
	list := p.history.find(named(r.FormValue("q")), times)
	reply(w, Changes{header: headerOf("Changes"), Found: len(list), Offset: offset, Changes: cut(list, offset, limit), NotTold: times.notTold})
}

// propagation is what agents say of when changes were in force.
type propagation struct {
	notTold string
	told    map[string][]nodeChange // by Service
}

// nodeChange is a change as a node's agent tells of it.
type nodeChange struct {
	node string
	agentlink.Change
}

// propagation asks the agents.
func (p *Page) propagation(ctx context.Context) propagation {
	agents := p.agents.found(ctx)
	changes, failed := make([][]agentlink.Change, len(agents)), make([]error, len(agents))
	agentlink.Each(ctx, agents, func(i int) {
		if agents[i].Err == nil {
			changes[i], failed[i] = agents[i].Changes(ctx)
		}
	})
	times := propagation{told: map[string][]nodeChange{}, notTold: "no agent answers, so it isn't known when changes were in force"}
	for i, a := range agents {
		switch {
		case a.Err != nil:
			continue
		case failed[i] != nil:
			times.notTold = failed[i].Error()
			continue
		}
		times.notTold = ""
		for _, c := range changes[i] {
			times.told[c.Service] = append(times.told[c.Service], nodeChange{a.Name(), c})
		}
	}
	return times
}

// sameWithin is how far apart this page and an agent may hear of the same change, by
// their clocks.
const sameWithin = 2 * time.Second

// times are those of the nodes for a change: of each, what it heard of at about the same
// time as this page did.
func (p propagation) times(c Change) []Propagation {
	nearest := map[string]nodeChange{}
	for _, told := range p.told[c.Service] {
		apart := told.Heard.Sub(c.Time).Abs()
		if before, there := nearest[told.node]; apart <= sameWithin && (!there || apart < before.Heard.Sub(c.Time).Abs()) {
			nearest[told.node] = told
		}
	}
	var list []Propagation
	for node, told := range nearest {
		t := Propagation{Node: node, InForce: told.InForce, Seconds: told.InForce.Sub(told.Heard).Seconds(), Since: "heard"}
		if !told.Made.IsZero() && !told.Made.After(told.InForce) {
			t.Seconds, t.Since = told.InForce.Sub(told.Made).Seconds(), "made"
		}
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Propagation) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return list
}
