// Package health writes what health checks found into EndpointSlices: nodes
// report what they see (package endpoint/check says how), and this controller
// counts their votes, sets `ready` and writes an Event at each change. It leaves
// alone the endpoints of pods and those that agents publish.
//
//	controller.go  what is watched, and when a Service is looked at
//	verdicts.go    votes to verdicts, with what was known before
//	write.go       verdicts to EndpointSlices and Events
package health

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/controller/endpointslice"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/queue"
)

const workers = 4

// The indexes of EndpointSlices: by the Service they belong to, and reports by
// the Service they are about.
const (
	byService = "service"
	byReport  = "report"
)

// Controller keeps `ready` of checked endpoints at what nodes report.
type Controller struct {
	cluster  *cluster.Cache
	slices   cache.SharedIndexInformer
	services *queue.Queue[types.NamespacedName]
	events   record.EventRecorder

	mu    sync.Mutex
	nodes *check.Nodes // nil if it must be made anew
	known map[types.NamespacedName]knowledge
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, events record.EventRecorder, log *slog.Logger) (*Controller, error) {
	selector := discoveryv1.LabelManagedBy + "!=" + endpointslice.Name
	controller := &Controller{
		cluster: c, events: events, known: map[types.NamespacedName]knowledge{},
		slices: discoveryinformers.NewFilteredEndpointSliceInformer(c.Client, metav1.NamespaceAll, 0,
			cache.Indexers{byService: indexService, byReport: indexReport},
			func(o *metav1.ListOptions) { o.LabelSelector = selector }),
	}
	controller.services = queue.New(log, controller.sync)
	if err := controller.slices.SetTransform(withoutManagedFields); err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
	if _, err := controller.slices.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: controller.sliceChanged, DeleteFunc: controller.sliceChanged,
		UpdateFunc: func(_, new any) { controller.sliceChanged(new) },
	}); err != nil {
		return nil, fmt.Errorf("watch EndpointSlices: %w", err)
	}
	if err := c.OnService(controller.serviceChanged); err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	if err := c.OnNode(controller.nodeChanged); err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cluster's cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { c.slices.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.slices.HasSynced) {
		return
	}
	c.services.Run(ctx, workers)
}

// withoutManagedFields gives a copy: an object may be its sender's too.
func withoutManagedFields(obj any) (any, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	trimmed := *s
	trimmed.ManagedFields = nil
	return &trimmed, nil
}

func indexService(obj any) ([]string, error) {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		if key, belongs := check.ServiceOf(s); belongs {
			return []string{key.String()}, nil
		}
	}
	return nil, nil
}

func indexReport(obj any) ([]string, error) {
	if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
		if key, _, is := check.IsReport(s); is {
			return []string{key.String()}, nil
		}
	}
	return nil, nil
}

func (c *Controller) sliceChanged(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	if key, belongs := check.ServiceOf(s); belongs {
		c.services.Add(key)
	} else if key, _, is := check.IsReport(s); is {
		c.services.Add(key)
	}
}

// serviceChanged looks at Services that ask for checks, or did.
func (c *Controller) serviceChanged(old, new *corev1.Service) {
	for _, s := range []*corev1.Service{old, new} {
		if s != nil && check.Asks(s.Annotations) {
			c.services.Add(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
			return
		}
	}
}

// nodeChanged has votes counted anew where that can matter.
func (c *Controller) nodeChanged(old, new *corev1.Node) {
	if old != nil && new != nil && check.NodeOf(old).Equal(check.NodeOf(new)) {
		return
	}
	c.mu.Lock()
	c.nodes = nil
	var all []types.NamespacedName
	for key := range c.known {
		all = append(all, key)
	}
	c.mu.Unlock()
	for _, key := range all {
		c.services.Add(key)
	}
}

// index returns the nodes as they are now.
func (c *Controller) index() (*check.Nodes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes != nil {
		return c.nodes, nil
	}
	list, err := c.cluster.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	nodes := make([]check.Node, len(list))
	for i, n := range list {
		nodes[i] = check.NodeOf(n)
	}
	c.nodes = check.NewNodes(nodes)
	return c.nodes, nil
}

// sync brings the EndpointSlices of a Service up to date with what was found.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	service, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	slices, err := c.lookUp(byService, key)
	if err != nil {
		return err
	}
	wish, _ := check.ReadWish(service.Annotations) // agents tell of problems
	if wish.Spec == nil {
		c.forget(key)
		return c.release(ctx, slices)
	}
	votes, err := c.votes(ctx, key)
	if err != nil {
		return err
	}
	nodes, err := c.index()
	if err != nil {
		return err
	}
	found := c.judge(key, wish, slices, votes, nodes, time.Now())
	if found.again > 0 {
		c.services.AddAfter(key, found.again)
	}
	if err := c.write(ctx, wish, slices, found); err != nil {
		return err
	}
	c.remember(key, found)
	c.reportChange(service, wish, found)
	return nil
}

func (c *Controller) lookUp(index string, key types.NamespacedName) ([]*discoveryv1.EndpointSlice, error) {
	objects, err := c.slices.GetIndexer().ByIndex(index, key.String())
	if err != nil {
		return nil, fmt.Errorf("look up EndpointSlices of %s: %w", key, err)
	}
	var list []*discoveryv1.EndpointSlice
	for _, o := range objects {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok && s.DeletionTimestamp == nil {
			list = append(list, s)
		}
	}
	return list, nil
}

// votes are what nodes report. Reports of nodes that are gone go too.
func (c *Controller) votes(ctx context.Context, key types.NamespacedName) (check.Votes, error) {
	reports, err := c.lookUp(byReport, key)
	if err != nil {
		return nil, err
	}
	nodes, err := c.index()
	if err != nil {
		return nil, err
	}
	votes := check.Votes{}
	for _, r := range reports {
		_, node, _ := check.IsReport(r)
		if nodes.Has(node) {
			votes.Add(node, check.Findings(r))
			continue
		}
		err := c.cluster.Client.DiscoveryV1().EndpointSlices(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete health report %s/%s of node %q, which is gone: %w", r.Namespace, r.Name, node, err)
		}
	}
	return votes, nil
}
