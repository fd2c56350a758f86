package web

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/endpoint/check"
)

// Problem is one finding, about a Service, a node, or what the page itself can't
// show.
type Problem struct {
	Code    doctor.Code `json:"code,omitempty"` // "" for those that no check made
	Title   string      `json:"title,omitempty"`
	Grade   string      `json:"grade"`
	Service string      `json:"service,omitempty"` // "namespace/name"
	Node    string      `json:"node,omitempty"`
	What    string      `json:"what"`
	Fix     string      `json:"fix,omitempty"`
	rank    doctor.Grade
}

// Problems is a page of what is not well, the surest first.
type Problems struct {
	header
	Counts   map[string]int `json:"counts"` // by grade
	Found    int            `json:"found"`  // by the search
	Offset   int            `json:"offset"`
	Problems []Problem      `json:"problems"`
	Services int            `json:"services"` // that were looked at
	Waiting  int            `json:"waiting"`  // to be looked at
}

// problems answers GET /api/v1/problems?q=&grade=&offset=&limit=.
func (p *Page) problems(w http.ResponseWriter, r *http.Request) {
	offset, limit, err := pageOf(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	all, waiting := p.survey.all()
	answer := Problems{header: headerOf("Problems"), Counts: map[string]int{}, Offset: offset, Services: len(all), Waiting: waiting}
	list := slices.Concat(p.nodeProblems(r), p.besideProblems(r), serviceProblems(all))
	for _, one := range list {
		answer.Counts[one.Grade]++
	}
	words, grade := strings.Fields(strings.ToLower(r.FormValue("q"))), r.FormValue("grade")
	list = slices.DeleteFunc(list, func(one Problem) bool {
		text := strings.ToLower(strings.Join([]string{one.Code.String(), one.Title, one.Service, one.Node, one.What}, " "))
		return grade != "" && grade != one.Grade || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	})
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.Node, a.Node), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Service, b.Service))
	})
	answer.Found = len(list)
	answer.Problems = cut(list, offset, limit)
	reply(w, answer)
}

func serviceProblems(all []*result) []Problem {
	titles := titlesOf()
	var list []Problem
	for _, r := range all {
		for _, f := range r.findings {
			list = append(list, Problem{
				Code: f.Code, Title: titles[f.Code], Grade: f.Grade.String(), rank: f.Grade,
				Service: r.row.Namespace + "/" + r.row.Name, What: f.What, Fix: f.Fix,
			})
		}
	}
	return list
}

func titlesOf() map[doctor.Code]string {
	titles := map[doctor.Code]string{}
	for _, c := range doctor.Catalogue() {
		titles[c.Code] = c.Title
	}
	return titles
}

// nodeProblems are nodes that aren't ready, and agents that are behind.
func (p *Page) nodeProblems(r *http.Request) []Problem {
	var list []Problem
	add := func(node, what string, grade doctor.Grade) {
		list = append(list, Problem{Node: node, What: what, Grade: grade.String(), rank: grade})
	}
	p.store.mu.RLock()
	for _, n := range byName(p.store.nodes) {
		if !check.NodeOf(n).Ready {
			add(n.Name, "the node is not ready: "+whyNotReady(n), doctor.Proved)
		}
	}
	p.store.mu.RUnlock()
	for _, a := range p.agents.found(r.Context()) {
		state := agentState(a)
		switch {
		case state.Error != "":
			add(a.Name(), "the agent doesn't answer: "+state.Error, doctor.Likely)
		case state.Sync != syncInStep:
			add(a.Name(), "the agent is "+state.Sync+": "+state.Detail, doctor.Likely)
		}
		for _, left := range state.LeftOut {
			add(a.Name(), "not in force: "+left.What, doctor.Proved)
		}
		for _, first := range a.Status.Ahead {
			add(a.Name(), first.What+", before they come to Services (FW136)", doctor.Likely)
		}
	}
	return list
}

func whyNotReady(n *corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Message != "" {
			return c.Message
		}
	}
	return "its Node says so"
}
