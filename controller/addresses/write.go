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

// write brings a Service's status in line with its assignment. Lost is why it
// couldn't keep what it had.
func (c *Controller) write(ctx context.Context, s *corev1.Service, got allocator.Assignment, lost error) error {
	if lost != nil && len(assigned(s)) > 0 {
		c.recorder.Eventf(s, corev1.EventTypeNormal, reasonCleared, "Cleared %v: %v", assigned(s), lost)
	}
	if slices.Equal(assigned(s), got.Addresses) && s.Annotations[v1beta1.AnnotationFromPool] == got.Pool {
		return nil
	}
	fresh := !slices.Equal(assigned(s), got.Addresses)
	if err := c.patch(ctx, s, got.Addresses, &got.Pool); err != nil {
		return err
	}
	if fresh {
		c.recorder.Eventf(s, corev1.EventTypeNormal, reasonAllocated, "Assigned IP %v from pool %s", got.Addresses, got.Pool)
	}
	return nil
}

// fail tells a Service's owner why it has no address, and takes what it must not
// keep. The same reason is told once.
func (c *Controller) fail(ctx context.Context, s *corev1.Service, lost, reason error) error {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	c.mu.Lock()
	told := c.waiting[key] == reason.Error()
	c.waiting[key] = reason.Error()
	c.mu.Unlock()
	why := reason.Error()
	if lost != nil {
		why = lost.Error()
	}
	if err := c.clear(ctx, s, why); err != nil {
		return err
	}
	if !told {
		c.recorder.Eventf(s, corev1.EventTypeWarning, reasonFailed, "Failed to allocate IP for %q: %v", key, reason)
	}
	return nil
}

// clear removes addresses that are ours from a Service's status. Those of
// another load balancer have no mark of ours, and stay with a Service that isn't
// ours.
func (c *Controller) clear(ctx context.Context, s *corev1.Service, why string) error {
	_, marked := s.Annotations[v1beta1.AnnotationFromPool]
	if !marked && (why == "" || len(s.Status.LoadBalancer.Ingress) == 0) {
		return nil
	}
	if why == "" {
		why = "the Service is none of ours any more"
	}
	if err := c.patch(ctx, s, nil, nil); err != nil {
		return err
	}
	if had := assigned(s); len(had) > 0 {
		c.recorder.Eventf(s, corev1.EventTypeNormal, reasonCleared, "Cleared %v: %s", had, why)
	}
	return nil
}

// patch writes status and mark at once: the status subresource takes both.
func (c *Controller) patch(ctx context.Context, s *corev1.Service, addresses []netip.Addr, pool *string) error {
	ingress := []corev1.LoadBalancerIngress{}
	for _, a := range addresses {
		ingress = append(ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":         s.UID, // not another Service of the same name
			"annotations": map[string]any{v1beta1.AnnotationFromPool: pool},
		},
		"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	})
	if err != nil {
		return fmt.Errorf("write patch of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	_, err = c.cluster.Client.CoreV1().Services(s.Namespace).
		Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // its deletion is on the way
	}
	if err != nil {
		c.recorder.Eventf(s, corev1.EventTypeWarning, reasonInvalid, "Could not write the status: %v", err)
		return fmt.Errorf("write status of Service %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
