package web

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/doctor"
)

// besideAgain is how soon it is asked again what is wrong beside the Services: it asks all agents.
const besideAgain = 10 * time.Second

// beside has the findings that follow from more than a Service's own objects: addresses that no
// node announces, and objects that nobody acts on.
type beside struct {
	mu    sync.Mutex
	asked time.Time
	found []doctor.ServiceReport
}

// get asks, or returns what was found a moment ago.
func (b *beside) get(ctx context.Context, ask func(context.Context) []doctor.ServiceReport) []doctor.ServiceReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Sub(b.asked) <= besideAgain {
		return b.found
	}
	found := ask(ctx)
	if ctx.Err() == nil { // else they had no time to answer
		b.found, b.asked = found, now
	}
	return found
}

// besideProblems are those that concern other objects, and addresses.
func (p *Page) besideProblems(r *http.Request) (list []Problem) {
	if p.config.Beside == nil {
		return nil
	}
	p.store.mu.RLock()
	var services []*corev1.Service
	for _, s := range p.store.services {
		if doctor.HasPoolAddress(s) {
			services = append(services, s)
		}
	}
	p.store.mu.RUnlock()
	titles := titlesOf()
	for _, one := range p.beside.get(r.Context(), func(ctx context.Context) []doctor.ServiceReport { return p.config.Beside(ctx, services) }) {
		for _, f := range one.Findings {
			problem := Problem{Code: f.Code, Title: titles[f.Code], Grade: f.Grade.String(), rank: f.Grade, Service: one.Service, What: f.What, Fix: f.Fix}
			if strings.Contains(one.Service, " ") { // another kind's, which has no page
				problem.Service, problem.What = "", one.Service+": "+f.What
			}
			list = append(list, problem)
		}
	}
	return list
}
