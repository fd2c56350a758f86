package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses/allocator"
)

// The reasons of Events, as MetalLB's controller has them.
const (
	reasonAllocated = "IPAllocated"
	reasonFailed    = "AllocationFailed"
	reasonCleared   = "ClearAssignment"
	reasonInvalid   = "LoadBalancerFailed"
	reasonPool      = "InvalidConfiguration"
)

// change is what became of a Service's addresses, and the Events that tell it.
type change struct {
	addresses []netip.Addr
	events    []event
}

type event struct{ reason, message string }

func cleared(addresses []netip.Addr, why string) event {
	return event{reasonCleared, fmt.Sprintf("Cleared %v: %s", addresses, why)}
}

// write brings a Service's status in line with its assignment. Lost is why it
// couldn't keep what it had.
func (c *Controller) write(ctx context.Context, s *corev1.Service, got allocator.Assignment, lost error) error {
	had := assigned(s)
	if slices.Equal(had, got.Addresses) && s.Annotations[v1beta1.AnnotationFromPool] == got.Pool {
		c.reportChange(s, had)
		return nil
	}
	ch := change{addresses: got.Addresses}
	if lost != nil && len(had) > 0 {
		ch.events = append(ch.events, cleared(had, lost.Error()))
	}
	if !slices.Equal(had, got.Addresses) {
		ch.events = append(ch.events, event{reasonAllocated, fmt.Sprintf("Assigned IP %v from pool %s", got.Addresses, got.Pool)})
	}
	return c.patch(ctx, s, &got.Pool, ch)
}

// fail tells a Service's owner why it has no address, and takes what it must not
// keep. The same reason is told once.
func (c *Controller) fail(ctx context.Context, s *corev1.Service, lost, reason error) error {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	c.mu.Lock()
	told := c.waiting[key] == reason.Error()
	if !told {
		c.waiting[key] = ""
	}
	c.mu.Unlock()
	why := reason.Error()
	if lost != nil {
		why = lost.Error()
	}
	if err := c.clear(ctx, s, why); err != nil || told {
		return err
	}
	c.recorder.Eventf(s, corev1.EventTypeWarning, reasonFailed, "Failed to allocate IP for %q: %v", key, reason)
	c.mu.Lock()
	c.waiting[key] = reason.Error()
	c.mu.Unlock()
	return nil
}

// clear removes addresses that are ours from a Service's status. Those of
// another load balancer have no mark of ours, and stay with a Service that isn't
// ours.
func (c *Controller) clear(ctx context.Context, s *corev1.Service, why string) error {
	had := assigned(s)
	_, marked := s.Annotations[v1beta1.AnnotationFromPool]
	if !marked && (why == "" || len(s.Status.LoadBalancer.Ingress) == 0) {
		c.reportChange(s, had)
		return nil
	}
	if why == "" {
		why = "the Service is none of ours any more"
	}
	var ch change
	if len(had) > 0 {
		ch.events = append(ch.events, cleared(had, why))
	}
	return c.patch(ctx, s, nil, ch)
}

// reportChange reports the last change of a Service's addresses, once these are what it has.
// The answer to a write may be lost: then the change is seen with the next look.
func (c *Controller) reportChange(s *corev1.Service, has []netip.Addr) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	c.mu.Lock()
	ch := c.untold[key]
	delete(c.untold, key)
	c.mu.Unlock()
	if slices.Equal(ch.addresses, has) {
		for _, e := range ch.events {
			c.recorder.Event(s, corev1.EventTypeNormal, e.reason, e.message)
		}
	}
}

// patch writes status and mark at once, since the status subresource takes both,
// and tells what has changed.
func (c *Controller) patch(ctx context.Context, s *corev1.Service, pool *string, ch change) error {
	ingress := []corev1.LoadBalancerIngress{}
	for _, a := range ch.addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": s.UID, // not another Service of the same name
			// A process that works no more, and doesn't know yet, must not write what was true once.
			"resourceVersion": s.ResourceVersion,
			"annotations":     map[string]any{v1beta1.AnnotationFromPool: pool},
		},
		"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return fmt.Errorf("write patch of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	c.mu.Lock()
	c.untold[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = ch
	c.mu.Unlock()
	_, err = c.cluster.Client.CoreV1().Services(s.Namespace).
		Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on the way
	}
	if apierrors.IsConflict(err) {
		return fmt.Errorf("write status of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	if err != nil {
		c.recorder.Eventf(s, corev1.EventTypeWarning, reasonInvalid, "Could not write the status: %v", err)
		return fmt.Errorf("write status of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	c.reportChange(s, ch.addresses)
	return nil
}
