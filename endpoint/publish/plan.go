package publish

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// tracked is an endpoint that this machine publishes.
type tracked struct {
	service types.NamespacedName
	verdict check.Verdict
	told    check.Health // by the last Event
	checked bool
}

// resolve finds the endpoints that entries amount to, by the names of their
// slices. Each problem names the file.
func (m *machine) resolve(entries []Entry, service *corev1.Service, have map[string]*discoveryv1.EndpointSlice) (map[string]*endpoint, []error) {
	endpoints := map[string]*endpoint{}
	var problems []error
	for i := range entries {
		e := &entries[i]
		if service == nil {
			problems = append(problems, fmt.Errorf("%s: there is no Service %s yet; `fairway expose %s --namespace %s --port PORT` makes one",
				e.Source, e.Service, e.Service.Name, e.Service.Namespace))
			continue
		}
		name, err := "", accepts(service)
		if err == nil {
			name, err = portOf(e, service)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: Service %s: %w", e.Source, e.Service, err))
			continue
		}
		addresses := e.Addresses
		if addresses == nil {
			addresses = m.addresses
		}
		some, closed := false, false
		for _, a := range addresses {
			if !served(service, a) {
				continue
			}
			some = true
			slice := sliceName(m.name, e.Service, e, a)
			if have[slice] == nil && !mayPublish(service, m.name) {
				closed = true // what was published before Services had a say stays
				continue
			}
			endpoints[slice] = &endpoint{entry: e, portName: name, addr: a}
		}
		if closed {
			problems = append(problems, fmt.Errorf("%s: Service %s doesn't say that this machine may publish endpoints of it: kubectl annotate service %s -n %s %s=%s (or '*' for all machines)",
				e.Source, e.Service, e.Service.Name, e.Service.Namespace, check.AnnotationPublishers, m.name))
		}
		if !some {
			problems = append(problems, fmt.Errorf("%s: Service %s has addresses of %v, and this machine publishes %v", e.Source, e.Service, service.Spec.IPFamilies, addresses))
		}
	}
	return endpoints, problems
}

// target is how an endpoint is asked: as its file says, else as its Service
// says, else as the protocol allows. Without any it isn't asked: nil.
func (e *endpoint) target(service *corev1.Service) (*check.Target, error) {
	t := &check.Target{Addr: netip.AddrPortFrom(e.addr, e.entry.Port), Spec: e.entry.Check, Own: true}
	if e.entry.Unchecked {
		return nil, nil
	}
	if t.Spec == nil {
		wish, _ := check.ReadWish(service.Annotations) // whoever checks for the Service tells of problems
		if t.Spec = wish.Spec; t.Spec != nil {
			t.Own = false
		}
	}
	if t.Spec == nil {
		t.Spec = defaultCheck(e.entry.Protocol)
	}
	if t.Spec == nil {
		return nil, fmt.Errorf("%s: whether anybody answers at a %s port can't be told without a check: give check, unit, or check: none", e.entry.Source, e.entry.Protocol)
	}
	if t.Spec.Port != "" {
		number := int32(e.entry.Port)
		port, err := check.PortOf(t.Spec, []discoveryv1.EndpointPort{{Name: &e.portName, Port: &number, Protocol: &e.entry.Protocol}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.entry.Source, err)
		}
		t.Addr = netip.AddrPortFrom(e.addr, port)
	}
	return t, nil
}

// check has the endpoints of a Service asked, and no others, and notes in them
// what is known. An endpoint begins where its slice says that it was.
func (p *Publisher) check(key types.NamespacedName, service *corev1.Service, endpoints map[string]*endpoint, have map[string]*discoveryv1.EndpointSlice) (problems []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, e := range endpoints {
		id := types.NamespacedName{Namespace: key.Namespace, Name: name}
		target, err := e.target(service)
		if err != nil {
			problems = append(problems, err)
			delete(endpoints, name)
			continue
		}
		t := p.tracked[id]
		if t == nil {
			t = &tracked{service: key, verdict: check.Verdict{Health: was(have[name])}}
			t.told = t.verdict.Health
			if h := have[name]; h != nil {
				t.verdict.Reason = h.Annotations[check.AnnotationReason]
			}
			p.tracked[id] = t
		}
		if t.checked = target != nil; t.checked {
			p.checks.Set(id, *target, t.verdict.Health)
		} else {
			p.checks.Remove(id)
			t.verdict = check.Verdict{Health: check.Healthy}
		}
		e.verdict = t.verdict
	}
	for id, t := range p.tracked {
		if t.service == key && (id.Namespace != key.Namespace || endpoints[id.Name] == nil) {
			delete(p.tracked, id)
			p.checks.Remove(id)
		}
	}
	return problems
}
