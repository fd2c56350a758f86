package check

import (
	"context"
	"fmt"
	"maps"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// report makes this node's reports about a Service say what was found. Reports
// that say it already cost nothing.
func (c *Checker) report(ctx context.Context, service types.NamespacedName, findings []Finding) error {
	c.mu.Lock()
	have := maps.Clone(c.input.reports[service])
	c.mu.Unlock()
	for _, want := range Reports(c.config.Node, service, findings) {
		old := have[want.Name]
		delete(have, want.Name)
		if err := c.write(ctx, old, want); err != nil {
			return err
		}
	}
	for name := range have {
		err := c.config.Client.DiscoveryV1().EndpointSlices(service.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete health report %s/%s: %w", service.Namespace, name, err)
		}
		c.forget(types.NamespacedName{Namespace: service.Namespace, Name: name})
	}
	return nil
}

// write creates or updates one report, and remembers it before the watch shows it.
func (c *Checker) write(ctx context.Context, old, want *discoveryv1.EndpointSlice) error {
	client := c.config.Client.DiscoveryV1().EndpointSlices(want.Namespace)
	var written *discoveryv1.EndpointSlice
	var err error
	switch {
	case old == nil:
		written, err = client.Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			if written, err = client.Get(ctx, want.Name, metav1.GetOptions{}); err == nil {
				c.remember(written)
				return c.write(ctx, written, want)
			}
		}
	case sameReport(old, want):
		return nil
	default:
		next := old.DeepCopy()
		next.Endpoints, next.Annotations = want.Endpoints, want.Annotations
		written, err = client.Update(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			c.forget(types.NamespacedName{Namespace: old.Namespace, Name: old.Name})
		}
	}
	if err != nil {
		return fmt.Errorf("write health report %s/%s: %w", want.Namespace, want.Name, err)
	}
	c.remember(written)
	return nil
}

// sameReport reports whether a report says what it should. Fields that the server has
// filled in don't matter.
func sameReport(have, want *discoveryv1.EndpointSlice) bool {
	return equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints) &&
		maps.Equal(have.Annotations, want.Annotations)
}

func (c *Checker) remember(s *discoveryv1.EndpointSlice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.input.setReport(s)
}

func (c *Checker) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.input.deleteReport(key)
}
