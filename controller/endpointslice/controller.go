// Package endpointslice writes the EndpointSlices of every Service that has a
// selector. What goes into a slice, and how slices are filled, is decided by
// k8s.io/endpointslice, as in Kubernetes; this package tells it when to look.
package endpointslice

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/metrics"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

// Name is what the label endpointslice.kubernetes.io/managed-by says of the
// slices of this controller: Kubernetes' own value, so that taking over from
// it, or handing back, rewrites nothing.
const Name = "endpointslice-controller.k8s.io"

const (
	// maxEndpoints is how many endpoints one slice holds, as in Kubernetes.
	maxEndpoints = 100
	workers      = 16
	// eventAfter is how many failures in a row a Service's Event reports.
	eventAfter = 3
)

// Controller keeps EndpointSlices in line with Services and Pods.
type Controller struct {
	cluster    *cluster.Cache
	events     record.EventRecorder
	logger     logr.Logger
	reconciler *endpointslice.Reconciler
	written    *cluster.Written
	triggers   *endpointsliceutil.TriggerTimeTracker
	topology   *topologycache.TopologyCache
	services   *queue.Queue[types.NamespacedName]
	zones      *queue.Queue[string]
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, events record.EventRecorder, log *slog.Logger) (*Controller, error) {
	metrics.RegisterMetrics()
	controller := &Controller{
		cluster:  c,
		events:   events,
		logger:   logr.FromSlogHandler(log.Handler()).V(int(-slog.LevelDebug)),
		triggers: endpointsliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	controller.services = queue.New(log, controller.sync)
	controller.zones = queue.New(log, controller.syncZones)
	var err error
	if controller.written, err = c.Written(Name, controller.services.Add); err != nil {
		return nil, err
	}
	controller.reconciler = endpointslice.NewReconciler(c.Client, c.Nodes, maxEndpoints,
		controller.written.EndpointSliceTracker, controller.topology, events, Name,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	c.OnSelection(controller.services.Add)
	if err := c.OnNode(controller.nodeChanged); err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	if err := c.setNodes(); err != nil {
		c.logger.Error(err, "topology hints wait for the next change of a Node")
	}
	zonesDone := make(chan struct{})
	go func() {
		defer close(zonesDone)
		c.zones.Run(ctx, 1)
	}()
	c.services.Run(ctx, workers)
	<-zonesDone
}

// sync brings the slices of one Service in line.
func (c *Controller) sync(_ context.Context, key types.NamespacedName) error {
	service, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		// The slices go through their owner reference.
		c.forget(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	existing, err := c.written.Of(key, c.services.Failures(key))
	if err != nil {
		return err
	}
	pods := c.placed(service, c.cluster.PodsOf(service))
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	if err := c.reconciler.Reconcile(c.logger, service, pods, existing, trigger); err != nil {
		if c.services.Failures(key) == eventAfter {
			c.events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
				"Error updating Endpoint Slices for Service %s: %v", key, err)
		}
		return fmt.Errorf("write EndpointSlices of %s: %w", key, err)
	}
	return nil
}

// placed leaves out Pods of Nodes that do not exist, which are no endpoints
// unless the Service publishes whatever there is. The library would leave them
// out too, and call it a failure, to be tried again; here a Node that appears
// asks for another look itself.
func (c *Controller) placed(service *corev1.Service, pods []*corev1.Pod) []*corev1.Pod {
	if service.Spec.PublishNotReadyAddresses {
		return pods
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		_, err := c.cluster.Nodes.Get(pod.Spec.NodeName)
		return apierrors.IsNotFound(err)
	})
}

func (c *Controller) forget(key types.NamespacedName) {
	c.triggers.DeleteService(key.Namespace, key.Name)
	c.reconciler.DeleteService(key.Namespace, key.Name)
	c.written.DeleteService(key.Namespace, key.Name)
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		c.topology.RemoveHints(key.String(), family)
	}
}
