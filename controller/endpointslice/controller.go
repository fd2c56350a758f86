// Package endpointslice writes the EndpointSlices of every Service that has a
// selector. What goes into a slice, and how slices are filled, is decided by
// k8s.io/endpointslice, as in Kubernetes; this package tells it when to look.
package endpointslice

import (
	"context"
	"fmt"
	"log/slog"

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
	"github.com/fairway-net/fairway/controller/queue"
)

// Name is what the label endpointslice.kubernetes.io/managed-by says of the
// slices of this controller: Kubernetes' own value, so that taking over from
// it, or handing back, rewrites nothing.
const Name = "endpointslice-controller.k8s.io"

const (
	// maxEndpoints is how many endpoints one slice holds, as in Kubernetes.
	maxEndpoints = 100
	workers      = 16
	// staleLimit is how often in a row the cache may be found behind the last
	// write. A slice that came and went while the watch was down is never
	// shown by it, and would be waited for for ever.
	staleLimit = 10
	// eventAfter is how many failures in a row a Service's Event reports.
	eventAfter = 3
)

// Controller keeps EndpointSlices in line with Services and Pods.
type Controller struct {
	cluster    *cluster.Cache
	events     record.EventRecorder
	logger     logr.Logger
	reconciler *endpointslice.Reconciler
	tracker    *endpointsliceutil.EndpointSliceTracker
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
		tracker:  endpointsliceutil.NewEndpointSliceTracker(),
		triggers: endpointsliceutil.NewTriggerTimeTracker(),
		topology: topologycache.NewTopologyCache(),
	}
	controller.reconciler = endpointslice.NewReconciler(c.Client, c.Nodes, maxEndpoints,
		controller.tracker, controller.topology, events, Name,
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	controller.services = queue.New(log, controller.sync)
	controller.zones = queue.New(log, controller.syncZones)

	c.OnSelection(controller.services.Add)
	if err := c.OnSlice(controller.sliceChanged); err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
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
	slices, err := c.cluster.SlicesOf(key, Name)
	if err != nil {
		return err
	}
	if c.tracker.StaleSlices(service, slices) {
		if c.services.Failures(key) < staleLimit {
			return fmt.Errorf("list EndpointSlices of %s: %w", key, queue.ErrStale)
		}
		c.tracker.DeleteService(key.Namespace, key.Name)
	}
	pods := c.cluster.PodsOf(service)
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)
	if err := c.reconciler.Reconcile(c.logger, service, pods, slices, trigger); err != nil {
		if c.services.Failures(key) == eventAfter {
			c.events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
				"Error updating Endpoint Slices for Service %s: %v", key, err)
		}
		return fmt.Errorf("write EndpointSlices of %s: %w", key, err)
	}
	return nil
}

func (c *Controller) forget(key types.NamespacedName) {
	c.triggers.DeleteService(key.Namespace, key.Name)
	c.reconciler.DeleteService(key.Namespace, key.Name)
	c.tracker.DeleteService(key.Namespace, key.Name)
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		c.topology.RemoveHints(key.String(), family)
	}
}

// sliceChanged asks for a look at the Service of a slice that somebody else
// has changed. What this controller wrote itself comes back here too and is
// known by its generation.
func (c *Controller) sliceChanged(old, new *discoveryv1.EndpointSlice) {
	switch {
	case old == nil:
		if managed(new) && c.tracker.ShouldSync(new) {
			c.services.Add(cluster.ServiceOf(new))
		}
	case new == nil:
		if !managed(old) {
			return
		}
		known := c.tracker.Has(old)
		if expected := c.tracker.HandleDeletion(old); !known || !expected {
			c.services.Add(cluster.ServiceOf(old))
		}
	case cluster.ServiceOf(old) != cluster.ServiceOf(new):
		c.services.Add(cluster.ServiceOf(old))
		c.services.Add(cluster.ServiceOf(new))
	case managed(old) != managed(new) || managed(new) && c.tracker.ShouldSync(new):
		c.services.Add(cluster.ServiceOf(new))
	}
}

func managed(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == Name
}
