// Package mirroring copies hand-made Endpoints of Services without a selector
// to EndpointSlices (KEP-752), since data planes read only those.
package mirroring

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/queue"
)

// Name is what the label endpointslice.kubernetes.io/managed-by says of the
// slices of this controller, as in Kubernetes.
const Name = "endpointslicemirroring-controller.k8s.io"

const workers = 4

// Controller keeps mirrored EndpointSlices in line with Endpoints.
type Controller struct {
	cluster   *cluster.Cache
	written   *cluster.Written
	endpoints *queue.Queue[types.NamespacedName]
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, log *slog.Logger) (*Controller, error) {
	controller := &Controller{cluster: c}
	controller.endpoints = queue.New(log, controller.sync)
	var err error
	if controller.written, err = c.Written(Name, controller.endpoints.Add); err != nil {
		return nil, err
	}
	if err := c.OnService(controller.serviceChanged); err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	if err := c.OnEndpoints(controller.endpointsChanged); err != nil {
		return nil, fmt.Errorf("watch Endpoints: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) { c.endpoints.Run(ctx, workers) }

func (c *Controller) serviceChanged(old, new *corev1.Service) {
	changed := new
	if new == nil {
		changed = old
	}
	c.endpoints.Add(types.NamespacedName{Namespace: changed.Namespace, Name: changed.Name})
}

func (c *Controller) endpointsChanged(old, new *corev1.Endpoints) {
	changed := new
	if new == nil {
		changed = old
	}
	c.endpoints.Add(types.NamespacedName{Namespace: changed.Namespace, Name: changed.Name})
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	existing, err := c.written.Of(key, c.endpoints.Failures(key))
	if err != nil {
		return err
	}
	source, err := c.source(key)
	if err != nil {
		return err
	}
	if source == nil {
		c.written.DeleteService(key.Namespace, key.Name)
		return c.remove(ctx, existing)
	}
	return c.reconcile(ctx, desired(source), existing)
}

// source returns the Endpoints to mirror, or nil if there are none or they are
// not to be mirrored.
func (c *Controller) source(key types.NamespacedName) (*corev1.Endpoints, error) {
	e, err := c.cluster.Endpoints.Endpoints(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Endpoints %s: %w", key, err)
	}
	_, election := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	if election || e.Labels[discoveryv1.LabelSkipMirror] == "true" || e.DeletionTimestamp != nil {
		return nil, nil
	}
	service, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Service %s: %w", key, err)
	}
	if len(service.Spec.Selector) > 0 {
		return nil, nil
	}
	return e, nil
}

// reconcile makes existing into wanted. A slice that holds something no longer
// wanted is rewritten to hold something new of its family, before any is
// created, and none is deleted before the new ones are there.
func (c *Controller) reconcile(ctx context.Context, wanted map[content]*discoveryv1.EndpointSlice, existing []*discoveryv1.EndpointSlice) error {
	spare := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, slice := range existing {
		want := wanted[contentOf(slice)]
		if want == nil || !metav1.IsControlledBy(slice, owner(want)) {
			spare[slice.AddressType] = append(spare[slice.AddressType], slice)
			continue
		}
		delete(wanted, contentOf(slice))
		if err := c.update(ctx, slice, want); err != nil {
			return err
		}
	}
	for _, want := range wanted {
		if old := spare[want.AddressType]; len(old) > 0 {
			spare[want.AddressType] = old[1:]
			if err := c.update(ctx, old[0], want); err != nil {
				return err
			}
		} else if err := c.create(ctx, want); err != nil {
			return err
		}
	}
	for _, unwanted := range spare {
		if err := c.remove(ctx, unwanted); err != nil {
			return err
		}
	}
	return nil
}

// owner returns an object with the identity of the slice's owner.
func owner(slice *discoveryv1.EndpointSlice) metav1.Object {
	return &metav1.ObjectMeta{UID: metav1.GetControllerOf(slice).UID}
}

func (c *Controller) client(slice *discoveryv1.EndpointSlice) discoveryclient.EndpointSliceInterface {
	return c.cluster.Client.DiscoveryV1().EndpointSlices(slice.Namespace)
}

func (c *Controller) update(ctx context.Context, slice, want *discoveryv1.EndpointSlice) error {
	check.CarryMark(slice, want)
	if equality.Semantic.DeepEqual(slice.Endpoints, want.Endpoints) &&
		equality.Semantic.DeepEqual(slice.Ports, want.Ports) &&
		equality.Semantic.DeepEqual(slice.Labels, want.Labels) &&
		equality.Semantic.DeepEqual(slice.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(slice.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	changed := slice.DeepCopy()
	changed.Endpoints, changed.Ports = want.Endpoints, want.Ports
	changed.Labels, changed.Annotations = want.Labels, want.Annotations
	changed.OwnerReferences = want.OwnerReferences
	updated, err := c.client(slice).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	c.written.Update(updated)
	return nil
}

func (c *Controller) create(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	created, err := c.client(want).Create(ctx, want, metav1.CreateOptions{})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create EndpointSlice %s/%s*: %w", want.Namespace, want.GenerateName, err)
	}
	c.written.Update(created)
	return nil
}

func (c *Controller) remove(ctx context.Context, unwanted []*discoveryv1.EndpointSlice) error {
	for _, slice := range unwanted {
		err := c.client(slice).Delete(ctx, slice.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		c.written.ExpectDeletion(slice)
	}
	return nil
}
