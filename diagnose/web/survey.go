package web

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/manifest"
)

// mostNodes is of how many nodes every Service's view is compiled, as doctor -A
// does.
const mostNodes = 3

// survey has what doctor finds about each Service by what the API says. A Service
// is looked at again when something that concerns it changes.
type survey struct {
	store  *store
	config compile.Config
	domain string
	told   func() // after results changed
	wake   chan struct{}

	mu      sync.Mutex
	waiting set[types.NamespacedName]
	results map[types.NamespacedName]*result
	version int // of the results
}

// result is what is known of a Service.
type result struct {
	row      Row
	findings []doctor.Finding
	search   string // what a search looks through, in lower case
}

func newSurvey(s *store, config compile.Config, domain string, told func()) *survey {
	return &survey{
		store: s, config: config, domain: domain, told: told, wake: make(chan struct{}, 1),
		waiting: set[types.NamespacedName]{}, results: map[types.NamespacedName]*result{},
	}
}

// again has Services looked at, and those that wait, if they may be now.
func (s *survey) again(names ...types.NamespacedName) {
	s.mu.Lock()
	for _, n := range names {
		s.waiting[n] = struct{}{}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// batch is how many Services are looked at before the page is told.
const batch = 500

// run looks at what waits until ctx is done. It begins when all is read that can
// be: before, every Service would seem to lack endpoints or pods.
func (s *survey) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for ctx.Err() == nil && s.store.settled() {
			names := s.next()
			if len(names) == 0 {
				break
			}
			for _, n := range names {
				s.look(ctx, n)
			}
			s.told()
		}
	}
}

// next takes some of those that wait.
func (s *survey) next() []types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []types.NamespacedName
	for n := range s.waiting {
		if len(list) == batch {
			break
		}
		list = append(list, n)
		delete(s.waiting, n)
	}
	return list
}

// look examines one Service.
func (s *survey) look(ctx context.Context, name types.NamespacedName) {
	objects, service := s.store.about(name)
	var now *result
	if service != nil {
		now = s.examine(ctx, service, objects)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	if now == nil {
		delete(s.results, name)
		return
	}
	s.results[name] = now
}

func (s *survey) examine(ctx context.Context, service *corev1.Service, objects *explain.Objects) *result {
	config := s.config
	if len(config.Pods.Prefixes)+len(config.Pods.Interfaces) == 0 {
		config.Pods.Prefixes = manifest.PodCIDRs(objects.Nodes)
	}
	objects.Nodes = objects.Nodes[:min(len(objects.Nodes), mostNodes)]
	q := explain.Question{Typed: "svc/" + service.Name, Target: explain.Target{Namespace: service.Namespace, Name: service.Name}}
	r := &result{row: rowIn(objects, service)}
	report, err := doctor.ByAPI(ctx, &doctor.Evidence{Objects: objects, Question: q, Service: service, Domain: s.domain}, config, nil)
	if err != nil {
		r.row.Error = err.Error()
	} else {
		for _, group := range report.Results {
			r.findings = append(r.findings, group.Findings...)
		}
	}
	r.row.judge(r.findings)
	r.search = searchText(r.row, service)
	return r
}

// all are the results of all Services, in no order, and how many wait.
func (s *survey) all() (list []*result, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.results)), len(s.waiting)
}

// countEndpoints counts the endpoints of slices, each address once.
func countEndpoints(list []*discoveryv1.EndpointSlice) (ready, all int) {
	found := map[string]bool{}
	for _, slice := range list {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) > 0 {
				found[e.Addresses[0]] = found[e.Addresses[0]] || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
	for _, is := range found {
		if is {
			ready++
		}
	}
	return ready, len(found)
}
