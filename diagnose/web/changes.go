package web

import (
	"context"
	"net/http"
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
type propagation struct{ notTold string }

// propagation asks the agents.
func (p *Page) propagation(context.Context) propagation {
	return propagation{notTold: "agents don't tell yet when a change was in force"}
}

func (propagation) times(Change) []Propagation { return nil }
