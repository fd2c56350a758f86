package web

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/explain"
)

// inForceAge is how old what agents have in force may be, while the API has never told the
// Services.
const inForceAge = 5 * time.Second

// watchInForce shows what agents have in force, for as long as the API has told nothing of
// Services or of endpoints and says why.
func (p *Page) watchInForce(ctx context.Context) {
	if p.config.InForce == nil {
		return
	}
	tick := time.NewTicker(inForceAge / 5)
	defer tick.Stop()
	for asked := (time.Time{}); !p.store.told(); {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		failed := p.store.failed()
		if failed == nil || time.Since(asked) < inForceAge {
			continue
		}
		asked = time.Now()
		objects, err := p.config.InForce(ctx, failed)
		if err == nil && p.store.setInForce(objects) {
			p.survey.again(p.store.names()...)
			p.hub.publish(topicState)
			p.hub.publish(topicServices)
		}
	}
}

// told reports whether the API has told all Services and endpoints once.
func (s *store) told() bool { return s.synced("services") && s.synced("endpointslices") }

// failed is why it hasn't; nil if that isn't known yet.
func (s *store) failed() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, resource := range resources[:2] {
		if p := s.parts[resource]; !p.synced && p.err != nil {
			return p.err
		}
	}
	return nil
}

// setInForce takes Services that agents have in force in the place of those that the API
// hasn't told; false if it has by now.
func (s *store) setInForce(o *explain.Objects) bool {
	s.mu.RLock()
	told := s.parts["services"].synced && s.parts["endpointslices"].synced
	known := s.parts["services"].synced
	s.mu.RUnlock()
	if told {
		return false
	}
	s.mu.Lock()
	s.inForce = o
	s.mu.Unlock()
	if known {
		return true // their endpoints are what is missing
	}
	s.dropInForce()
	for _, service := range o.Services {
		name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		if s.has(name) {
			continue
		}
		s.setService(name, service)
		s.mu.Lock()
		s.ofAgents[name] = struct{}{}
		s.mu.Unlock()
	}
	return true
}

func (s *store) has(name types.NamespacedName) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.services[name] != nil
}

// dropInForce forgets the Services that only agents have told of, and returns their names.
func (s *store) dropInForce() (names []types.NamespacedName) {
	s.mu.Lock()
	gone := s.ofAgents
	s.ofAgents = set[types.NamespacedName]{}
	s.mu.Unlock()
	for name := range gone {
		s.setService(name, nil)
		names = append(names, name)
	}
	return names
}

// apiTold ends what agents told, as far as the API tells it now. It returns what is gone.
func (s *store) apiTold(resource string) (gone []types.NamespacedName) {
	if resource == "services" {
		gone = s.dropInForce()
	}
	if s.told() {
		s.mu.Lock()
		s.inForce = nil
		s.mu.Unlock()
	}
	return gone
}
