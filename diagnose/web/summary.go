package web

import (
	"net/http"

	"github.com/fairway-net/fairway/diagnose/doctor"
)

// Summary is what every view of the page has.
type Summary struct {
	header
	Version  string `json:"version"`
	Server   string `json:"server"`
	Flags    string `json:"flags,omitempty"` // that the commands need
	Services int    `json:"services"`
	Nodes    int    `json:"nodes"`
	Problems int    `json:"problems"` // Services with findings that are more than notes
	Waiting  int    `json:"waiting"`  // Services to be looked at
	Synced   bool   `json:"synced"`   // Services and endpoints were read
	Parts    []Part `json:"parts,omitempty"`
	Agents   int    `json:"agents"` // that answer
	CanFlows bool   `json:"canFlows"`
	// CanExamine says that doctor can be run in full from the page.
	CanExamine bool `json:"canExamine"`
}

// Part is a kind of objects that can't be shown, or not all of it.
type Part struct {
	Resource string `json:"resource"`
	Error    string `json:"error,omitempty"`
	Reading  bool   `json:"reading,omitempty"` // for the first time
}

// summary answers GET /api/v1/summary.
func (p *Page) summary(w http.ResponseWriter, r *http.Request) {
	s := Summary{
		header: headerOf("Summary"), Version: p.config.Version, Server: p.config.Server, Flags: p.config.Flags,
		CanFlows: p.config.Flows != nil, CanExamine: p.config.Examine != nil,
	}
	all, waiting := p.survey.all()
	s.Waiting = waiting
	for _, one := range all {
		if one.row.rank > int(doctor.Note)+1 {
			s.Problems++
		}
	}
	for _, a := range p.agents.found(r.Context()) {
		if a.Err == nil {
			s.Agents++
		}
	}
	p.store.mu.RLock()
	defer p.store.mu.RUnlock()
	s.Services, s.Nodes = len(p.store.services), len(p.store.nodes)
	s.Synced = p.store.parts["services"].synced && p.store.parts["endpointslices"].synced || p.store.inForce != nil
	for _, resource := range resources {
		switch part := p.store.parts[resource]; {
		case part.err != nil && p.store.inForce != nil && resource == "services":
			s.Parts = append(s.Parts, Part{Resource: resource, Error: part.err.Error() + "; shown is what agents have in force"})
		case part.err != nil:
			s.Parts = append(s.Parts, Part{Resource: resource, Error: part.err.Error()})
		case !part.synced:
			s.Parts = append(s.Parts, Part{Resource: resource, Reading: true})
		}
	}
	reply(w, s)
}

// Cause is an entry of doctor's catalogue.
type Cause struct {
	header
	Code    doctor.Code `json:"code"`
	Title   string      `json:"title"`
	Meaning string      `json:"meaning"`
	Fix     string      `json:"fix"`
}

// cause answers GET /api/v1/causes/{code}.
func (p *Page) cause(w http.ResponseWriter, r *http.Request) {
	c, err := doctor.CauseOf(r.PathValue("code"))
	if err != nil {
		fail(w, http.StatusNotFound, err)
		return
	}
	reply(w, Cause{headerOf("Cause"), c.Code, c.Title, c.Meaning, c.Fix})
}
