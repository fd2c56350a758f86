// Package endpoints writes the Endpoints object of every Service that has a
// selector. Nothing here reads them; they are for the programs that have not
// moved on to EndpointSlices.
package endpoints

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

const (
	workers = 8
	// later is when Endpoints are written after a change: what packets wait for comes first,
	// and further changes are one write.
	later = 100 * time.Millisecond
)

// Controller keeps Endpoints in line with Services and Pods.
type Controller struct {
	cluster  *cluster.Cache
	log      *slog.Logger
	triggers *endpointsliceutil.TriggerTimeTracker
	services *queue.Queue[types.NamespacedName]
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, log *slog.Logger) (*Controller, error) {
	controller := &Controller{cluster: c, log: log, triggers: endpointsliceutil.NewTriggerTimeTracker()}
	controller.services = queue.New(log, controller.sync)
	c.OnSelection(func(service types.NamespacedName) { controller.services.AddAfter(service, later) })
	if err := c.OnEndpoints(controller.endpointsChanged); err != nil {
		return nil, fmt.Errorf("watch Endpoints: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	c.requeueLeftOver()
	c.services.Run(ctx, workers)
}

// requeueLeftOver finds Endpoints whose Service went while nobody watched.
func (c *Controller) requeueLeftOver() {
	all, err := c.cluster.Endpoints.List(labels.Everything())
	if err != nil {
		c.log.Error("left-over Endpoints of deleted Services could not be listed; they stay", "error", fmt.Errorf("list Endpoints: %w", err))
	}
	for _, e := range all {
		c.services.Add(types.NamespacedName{Namespace: e.Namespace, Name: e.Name})
	}
}

// endpointsChanged asks for a look at Endpoints that this controller wrote, or
// that somebody deleted. The controller's own writes come back here as well,
// which is how a decision taken before the cache showed them is put right.
func (c *Controller) endpointsChanged(old, new *corev1.Endpoints) {
	if new == nil {
		c.services.Add(types.NamespacedName{Namespace: old.Namespace, Name: old.Name})
	} else if new.Labels[LabelManagedBy] == Manager {
		c.services.Add(types.NamespacedName{Namespace: new.Namespace, Name: new.Name})
	}
}

func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	current, err := c.cluster.Endpoints.Endpoints(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		current, err = &corev1.Endpoints{}, nil
	}
	if err != nil {
		return fmt.Errorf("get Endpoints %s: %w", key, err)
	}
	service, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.triggers.DeleteService(key.Namespace, key.Name)
		return c.remove(ctx, current)
	}
	if err != nil {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName || service.DeletionTimestamp != nil {
		return nil
	}
	pods := c.cluster.PodsOf(service)
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	want := wanted(service, current, pods)
	if current.ResourceVersion != "" && same(current, want) {
		return nil
	}
	setTrigger(want, trigger)
	return c.write(ctx, want)
}

func same(a, b *corev1.Endpoints) bool {
	return equality.Semantic.DeepEqual(a.Subsets, b.Subsets) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		a.Annotations[corev1.EndpointsOverCapacity] == b.Annotations[corev1.EndpointsOverCapacity]
}

// write creates or updates. An update carries the version it was made from, so
// one made from an old state is refused, and tried again from the new.
func (c *Controller) write(ctx context.Context, want *corev1.Endpoints) error {
	client := c.cluster.Client.CoreV1().Endpoints(want.Namespace)
	if want.ResourceVersion != "" {
		if _, err := client.Update(ctx, want, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update Endpoints %s/%s: %w", want.Namespace, want.Name, err)
		}
		return nil
	}
	_, err := client.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create Endpoints %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// remove deletes the Endpoints of a Service that is gone, those made by hand
// included, as in Kubernetes. Those that only hold a leader election stay.
func (c *Controller) remove(ctx context.Context, current *corev1.Endpoints) error {
	if _, election := current.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]; election || current.Name == "" {
		return nil
	}
	err := c.cluster.Client.CoreV1().Endpoints(current.Namespace).Delete(ctx, current.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &current.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Endpoints %s/%s: %w", current.Namespace, current.Name, err)
	}
	return nil
}
