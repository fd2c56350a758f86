package web

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
)

// Service is what there is to say of one Service.
type Service struct {
	header
	Row         Row             `json:"row"`
	Explanation *explain.Report `json:"explanation"`
	Diagnosis   *doctor.Report  `json:"diagnosis,omitempty"`
	Changes     []Change        `json:"changes,omitempty"` // the latest first
	// FromError says why the source that was given doesn't do; then the answer is
	// for packets from anywhere.
	FromError string `json:"fromError,omitempty"`
}

// service answers GET /api/v1/services/{namespace}/{name}?from=&node=.
func (p *Page) service(w http.ResponseWriter, r *http.Request) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	answer := Service{header: headerOf("Service")}
	q, objects, err := p.question(name, r)
	if err == nil {
		err = p.explain(r, q, objects, &answer)
	}
	if err != nil { // of the source; what doesn't depend on it is said all the same
		answer.FromError = err.Error()
		r.Form.Del("from")
		if q, objects, err = p.question(name, r); err == nil {
			err = p.explain(r, q, objects, &answer)
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	service := objects.Service(name.Namespace, name.Name)
	if service == nil {
		reply(w, answer) // the explanation says which was meant
		return
	}
	answer.Row = rowIn(objects, service)
	var findings []doctor.Finding
	for _, group := range answer.Diagnosis.Results {
		findings = append(findings, group.Findings...)
	}
	answer.Row.judge(findings)
	answer.Changes = p.history.of(name, p.propagation(r.Context()))
	reply(w, answer)
}

// question is what a request asks, and the objects that it is about.
func (p *Page) question(name types.NamespacedName, r *http.Request) (explain.Question, *explain.Objects, error) {
	from, err := explain.ParseSource(r.FormValue("from"), name.Namespace)
	if err != nil {
		return explain.Question{}, nil, err
	}
	objects, _ := p.store.about(name)
	p.store.withPod(objects, from)
	return explain.Question{
		Typed: "svc/" + name.Name, Target: explain.Target{Namespace: name.Namespace, Name: name.Name}, From: from, Node: r.FormValue("node"),
	}, objects, nil
}

// explain works out both reports.
func (p *Page) explain(r *http.Request, q explain.Question, objects *explain.Objects, into *Service) (err error) {
	config := p.config.Compile
	if len(config.Pods.Prefixes)+len(config.Pods.Interfaces) == 0 {
		config.Pods.Prefixes = manifest.PodCIDRs(objects.Nodes)
	}
	into.Explanation, err = explain.FromObjects(q, objects, config, p.asker(r))
	if err != nil {
		return err
	}
	e := &doctor.Evidence{Objects: objects, Question: q, Report: into.Explanation, Domain: p.config.Domain}
	e.Service = objects.Of(q.Target)
	into.Diagnosis = doctor.Examine(r.Context(), e)
	return nil
}

// asker asks the agents that can be reached from here.
func (p *Page) asker(r *http.Request) explain.Asker {
	if p.agents.ask == nil {
		return nil
	}
	return agentlink.AskAllOnce(r.Context(), func() []agentlink.Found { return p.agents.found(r.Context()) })
}

// examine answers POST /api/v1/services/{namespace}/{name}/examine?from=: doctor
// in full, which connects to endpoints and looks at this machine.
func (p *Page) examine(w http.ResponseWriter, r *http.Request) {
	if p.config.Examine == nil {
		fail(w, http.StatusNotFound, fmt.Errorf("this page can't examine"))
		return
	}
	report, err := p.config.Examine(r.Context(), r.PathValue("namespace"), r.PathValue("name"), r.FormValue("from"))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	reply(w, report)
}
