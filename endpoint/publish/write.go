package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// The reasons of Events.
const (
	reasonInvalidFile  = "InvalidPublishFile"
	reasonNotPublished = "EndpointNotPublished"
	reasonHealthy      = "EndpointHealthy"
	reasonUnhealthy    = "EndpointUnhealthy"
)

// service reads a Service: by a list, which is what the role of a proxy allows.
func (p *Publisher) service(ctx context.Context, key types.NamespacedName) (*corev1.Service, error) {
	list, err := p.config.Client.CoreV1().Services(key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("look up Service %s: %w", key, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == key.Name && list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// own reads this machine's slices of a Service, by name; those of all Services
// if it has no name.
func (p *Publisher) own(ctx context.Context, key types.NamespacedName) (map[string]*discoveryv1.EndpointSlice, error) {
	want := labels.Set{discoveryv1.LabelManagedBy: Manager, check.NodeLabel: p.config.Node}
	if key.Name != "" {
		want[discoveryv1.LabelServiceName] = key.Name
	}
	list, err := p.config.Client.DiscoveryV1().EndpointSlices(key.Namespace).List(ctx, metav1.ListOptions{LabelSelector: want.String()})
	if err != nil {
		return nil, fmt.Errorf("list published EndpointSlices of %s: %w", key, err)
	}
	found := map[string]*discoveryv1.EndpointSlice{}
	for i := range list.Items {
		name := list.Items[i].Name
		if key.Name == "" {
			name = list.Items[i].Namespace + "/" + name
		}
		found[name] = &list.Items[i]
	}
	return found, nil
}

// write brings slices to what is wanted; those that aren't wanted any more are drained first.
func (p *Publisher) write(ctx context.Context, key types.NamespacedName, m *machine, service *corev1.Service, endpoints map[string]*endpoint, have map[string]*discoveryv1.EndpointSlice) error {
	client := p.config.Client.DiscoveryV1().EndpointSlices(key.Namespace)
	var errs []error
	for name, e := range endpoints {
		h := have[name]
		if e.verdict.Health == check.Unknown && (h == nil || !isDraining(h)) {
			continue // the first answer decides
		}
		p.keep(types.NamespacedName{Namespace: key.Namespace, Name: name})
		want := m.slice(e)
		var err error
		switch {
		case h == nil:
			_, err = client.Create(ctx, want, metav1.CreateOptions{})
		case !same(h, want):
			want.ResourceVersion = h.ResourceVersion
			_, err = client.Update(ctx, want, metav1.UpdateOptions{})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write EndpointSlice %s/%s: %w", key.Namespace, name, err))
		}
	}
	for name, h := range have {
		if endpoints[name] == nil {
			errs = append(errs, p.retire(ctx, key, h, service != nil))
		}
	}
	return errors.Join(errs...)
}

// keep ends the draining of a slice.
func (p *Publisher) keep(slice types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.draining, slice)
}

// retire drains a slice, and removes it when that is over. Without a Service, or
// if nobody answered there, nothing is to be drained.
func (p *Publisher) retire(ctx context.Context, key types.NamespacedName, s *discoveryv1.EndpointSlice, used bool) error {
	id := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	client := p.config.Client.DiscoveryV1().EndpointSlices(s.Namespace)
	p.mu.Lock()
	until, begun := p.draining[id]
	if !begun {
		until = time.Now().Add(p.config.DrainTime)
		p.draining[id] = until
	}
	p.mu.Unlock()
	left := time.Until(until)
	if left <= 0 || !used || !hasConnections(s) {
		if err := client.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s: %w", id, err)
		}
		p.keep(id)
		return nil
	}
	p.dirty.AddAfter(key, left)
	if isDraining(s) {
		return nil
	}
	if _, err := client.Update(ctx, drained(s), metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("drain EndpointSlice %s: %w", id, err)
	}
	return nil
}

// Drain takes everything that this machine publishes out of service and waits
// until connections have had their time. Nothing is published any more.
func (p *Publisher) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	if p.config.Folder == "" {
		return nil
	}
	have, err := p.own(ctx, types.NamespacedName{})
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	var errs []error
	wait := false
	for _, s := range have {
		wait = wait || hasConnections(s)
		if _, err := p.config.Client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, drained(s), metav1.UpdateOptions{}); err != nil {
			errs = append(errs, fmt.Errorf("drain EndpointSlice %s/%s: %w", s.Namespace, s.Name, err))
		}
	}
	if wait {
		p.config.Log.Info("draining this machine's endpoints before the agent ends", "slices", len(have), "duration", p.config.DrainTime)
		select {
		case <-ctx.Done():
		case <-time.After(p.config.DrainTime):
		}
	}
	for _, s := range have {
		if err := p.config.Client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete EndpointSlice %s/%s: %w", s.Namespace, s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// reportProblems reports problems that are new: in Events of the Service, or of the Node
// as long as there is none.
func (p *Publisher) reportProblems(key types.NamespacedName, there bool, problems []error) {
	now := map[string]bool{}
	for _, problem := range problems {
		now[problem.Error()] = true
	}
	p.mu.Lock()
	before := p.told[key]
	if p.told[key] = now; len(now) == 0 {
		delete(p.told, key)
	}
	p.mu.Unlock()
	about := key
	if !there {
		about = types.NamespacedName{}
	}
	for message := range now {
		if !before[message] {
			p.config.Log.Warn("an endpoint is not published", "error", message)
			p.config.Tell(about, corev1.EventTypeWarning, reasonNotPublished, message)
		}
	}
}

// reportHealth writes an Event at each change.
func (p *Publisher) reportHealth(key types.NamespacedName, endpoints map[string]*endpoint) {
	for name, e := range endpoints {
		p.mu.Lock()
		t := p.tracked[types.NamespacedName{Namespace: key.Namespace, Name: name}]
		before := check.Unknown
		if t != nil {
			before, t.told = t.told, e.verdict.Health
		}
		p.mu.Unlock()
		at := fmt.Sprintf("endpoint %s port %d, published by %s", e.addr, e.entry.Port, p.config.Node)
		switch {
		case t == nil || before == e.verdict.Health:
		case e.verdict.Health == check.Unhealthy:
			p.config.Tell(key, corev1.EventTypeWarning, reasonUnhealthy, at+", gets no new connections: "+e.verdict.Reason)
		case before == check.Unhealthy:
			p.config.Tell(key, corev1.EventTypeNormal, reasonHealthy, at+", answers again")
		}
	}
}

// lookForLeftovers has Services looked at that an agent before this one
// published endpoints of. Where the API is away, the watch tells of them later.
func (p *Publisher) lookForLeftovers(concerned map[types.NamespacedName]bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	have, err := p.own(ctx, types.NamespacedName{})
	if err != nil {
		return
	}
	for _, s := range have {
		if key, belongs := check.ServiceOf(s); belongs {
			concerned[key] = true
		}
	}
}
