// Package noendpoints writes an Event on every Service whose selector leads to no
// endpoint for a while: that it matches no Pod, and what it was probably meant to
// match, or that none of its Pods is ready.
package noendpoints

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/diagnose/nearest"
	"github.com/fairway-net/fairway/internal/queue"
)

// Reason is the reason of the Events.
const Reason = "NoEndpoints"

// Component is who the Events are from.
const Component = "endpoints-watch"

// The time that a Service may be without endpoints before an Event says so: a
// Service is often made before its Pods, and Pods take a while to start.
const (
	unmatchedGrace = 5 * time.Second
	unreadyGrace   = 30 * time.Second
)

// Controller watches Services and Pods.
type Controller struct {
	cluster  *cluster.Cache
	events   record.EventRecorder
	services *queue.Queue[types.NamespacedName]
	now      func() time.Time

	mu    sync.Mutex
	since map[types.NamespacedName]episode
}

// episode is a time without endpoints.
type episode struct {
	began    time.Time
	reported string // what the last Event said; "" before the first
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, events record.EventRecorder, log *slog.Logger) *Controller {
	controller := &Controller{cluster: c, events: events, now: time.Now, since: map[types.NamespacedName]episode{}}
	controller.services = queue.New(log, controller.sync)
	c.OnSelection(controller.services.Add)
	return controller
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) { c.services.Run(ctx, 1) }

// sync looks at one Service, and again once its time without endpoints is up.
func (c *Controller) sync(_ context.Context, key types.NamespacedName) error {
	service, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	if err != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		c.end(key)
		return nil
	}
	pods := c.cluster.PodsOf(service)
	for _, p := range pods {
		if endpointsliceutil.IsPodReady(p) || service.Spec.PublishNotReadyAddresses {
			c.end(key)
			return nil
		}
	}
	grace := unmatchedGrace
	if len(pods) > 0 {
		grace = unreadyGrace
	}
	if wait := grace - c.outageAge(key); wait > 0 {
		c.services.AddAfter(key, wait)
		return nil
	}
	message, err := c.message(service, pods)
	if err != nil {
		return err
	}
	if c.isNew(key, message) {
		c.events.Event(service, corev1.EventTypeWarning, Reason, message)
	}
	return nil
}

// end notes that a Service has endpoints, needs none, or is gone.
func (c *Controller) end(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, key)
}

// outageAge is how long a Service has been without endpoints, from now on if it
// wasn't yet.
func (c *Controller) outageAge(key types.NamespacedName) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.since[key]
	if !known {
		e.began = c.now()
		c.since[key] = e
	}
	return c.now().Sub(e.began)
}

// isNew notes what is said of a Service, and reports whether the last Event said
// something else.
func (c *Controller) isNew(key types.NamespacedName, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.since[key]
	was := e.reported
	e.reported = message
	c.since[key] = e
	return was != message
}

// message says why there is no endpoint.
func (c *Controller) message(service *corev1.Service, pods []*corev1.Pod) (string, error) {
	if len(pods) > 0 {
		return fmt.Sprintf("none of the %d pods that selector %s matches is ready", len(pods), labels.FormatLabels(service.Spec.Selector)), nil
	}
	message := fmt.Sprintf("selector %s matches no pod", labels.FormatLabels(service.Spec.Selector))
	all, err := c.cluster.PodLabels(service.Namespace)
	if err != nil {
		return "", err
	}
	if s, ok := nearest.Selector(service.Spec.Selector, all); ok {
		message += fmt.Sprintf("; %s=%s would match %d", s.Key, s.Want, s.Matches)
	}
	return message, nil
}
