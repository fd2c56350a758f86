// Package addresses gives Services of type LoadBalancer their addresses, from
// pools that IPAddressPools of MetalLB's API describe. It runs with the other
// controllers, or alone in a cluster. What it has given is in the Services'
// status and stays with them over restarts; it also keeps what MetalLB gave.
//
//	controller.go     which Services to look at, and when
//	service.go        what a Service asks for
//	write.go          what is written to Services, and Events
//	configuration.go  pools, and what is wrong with them
//	pools.go          following pools and nodes; counts and ConfigurationState
//	keys.go           the key that nodes sign their adverts with
//	announced.go      Services that no node announces
//	elsewhere.go      pools in a namespace where they do not count
//	simple.go         the pool of --load-balancer-range
//	allocator/        who has which address (pure)
package addresses

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses/allocator"
	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/iprange"
	"github.com/fairway-net/fairway/internal/queue"
	"github.com/fairway-net/fairway/kube"
)

// Name is the component in Events.
const Name = "fairway-addresses"

// workers bounds the writes under way at a time.
const workers = 8

// Options say what Services and pools to look at; the zero value is good.
type Options struct {
	// Namespace of the pools; v1beta1.DefaultNamespace if "".
	Namespace string
	// Class of the Services to give addresses to; "" is those without a class.
	Class string
	// ServiceCIDRs are cluster IPs, which no pool may have.
	ServiceCIDRs []netip.Prefix
	// Ranges, if not empty, are made a pool at start, which all nodes announce.
	Ranges []string
	// MakeNamespace makes the namespace of the pools if it isn't there.
	MakeNamespace bool
	// AnnounceGrace is how long nodes have to announce a Service before an Event says that none
	// does; 30 s if 0.
	AnnounceGrace time.Duration
}

// Controller gives addresses.
type Controller struct {
	options  Options
	cluster  *cluster.Cache
	metallb  *kube.MetalLB
	recorder record.EventRecorder
	log      *slog.Logger

	allocator *allocator.Allocator
	services  *queue.Queue[types.NamespacedName]
	reports   *queue.Queue[string] // names of pools, or "" for the ConfigurationState
	reread    chan struct{}        // pools or nodes changed
	nodesGone atomic.Bool          // since the key of adverts was replaced
	keyDue    chan struct{}        // nodes came or went
	announced atomic.Pointer[announced]

	mu       sync.Mutex
	pools    map[string]*v1beta1.IPAddressPool
	gone     []string // nodes that were deleted, and that the Secret with the key has to name
	problems []problem
	waiting  map[types.NamespacedName]string // Services without an address, and the reason told
	untold   map[types.NamespacedName]change // of Services whose write was not answered yet
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, metallb *kube.MetalLB, recorder record.EventRecorder, options Options, log *slog.Logger) (*Controller, error) {
	options.Namespace = cmp.Or(options.Namespace, v1beta1.DefaultNamespace)
	for _, text := range options.Ranges {
		if _, err := iprange.Parse(text); err != nil {
			return nil, fmt.Errorf("load balancer range: %w", err)
		}
	}
	controller := &Controller{
		options: options, cluster: c, metallb: metallb, recorder: recorder, log: log,
		allocator: allocator.New(),
		reread:    make(chan struct{}, 1),
		keyDue:    make(chan struct{}, 1),
		pools:     map[string]*v1beta1.IPAddressPool{},
		waiting:   map[types.NamespacedName]string{},
		untold:    map[types.NamespacedName]change{},
	}
	controller.services = queue.New(log, controller.sync)
	controller.reports = queue.New(log, controller.report)
	if err := c.OnService(controller.serviceChanged); err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	if err := c.OnNamespace(controller.namespaceChanged); err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	if err := c.OnNode(controller.nodeChanged); err != nil {
		return nil, fmt.Errorf("watch Nodes: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete. Nothing is given or
// taken before the pools are known.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if !c.prepare(ctx) {
		return
	}
	synced := make(chan struct{})
	var once sync.Once
	running.Go(func() { c.watchPools(ctx, func() { once.Do(func() { close(synced) }) }) })
	select {
	case <-ctx.Done():
		return
	case <-synced:
	}
	c.configure()
	c.adopt()
	running.Go(func() { c.keepKey(ctx) })
	if c.options.MakeNamespace { // the cluster is ours, and so is the right to look everywhere
		running.Go(func() { c.watchElsewhere(ctx) })
		running.Go(func() { c.watchAnnounced(ctx) })
	}
	running.Go(func() { c.follow(ctx) })
	running.Go(func() { c.reports.Run(ctx, 1) })
	c.services.Run(ctx, workers)
}

func (c *Controller) serviceChanged(old, new *corev1.Service) {
	s := cmp.Or(new, old)
	c.services.Add(types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	c.awaitAnnounced(s)
}

// namespaceChanged looks at a namespace's Services anew if its labels changed,
// by which pools select.
func (c *Controller) namespaceChanged(old, new *corev1.Namespace) {
	if new == nil || old != nil && labels.Equals(old.Labels, new.Labels) {
		return
	}
	services, err := c.cluster.Services.Services(new.Name).List(labels.Everything())
	if err != nil {
		c.log.Warn("Services could not be listed", "namespace", new.Name, "error", err)
	}
	for _, s := range services {
		c.serviceChanged(nil, s)
	}
}

// adopt takes in what the Services' statuses say before anybody is given
// anything: the oldest Service first, should two have the same address.
func (c *Controller) adopt() {
	services, err := c.cluster.Services.List(labels.Everything())
	if err != nil {
		c.log.Warn("Services could not be listed", "error", err)
	}
	services = slices.DeleteFunc(services, func(s *corev1.Service) bool {
		return !wants(s, c.options.Class) || len(assigned(s)) == 0
	})
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range services {
		if r, err := request(s, c.labelsOf(s.Namespace)); err == nil {
			c.allocator.Adopt(r, assigned(s))
		}
	}
}

func (c *Controller) labelsOf(namespace string) labels.Set {
	n, err := c.cluster.Namespaces.Get(namespace)
	if err != nil {
		return nil // it is gone, or so new that its change will come
	}
	return n.Labels
}

// sync gives a Service its addresses or takes them back.
func (c *Controller) sync(ctx context.Context, key types.NamespacedName) error {
	s, err := c.cluster.Services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.free(key)
		c.allocator.Forget(key)
		c.mu.Lock()
		delete(c.untold, key)
		c.mu.Unlock()
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Service %s: %w", key, err)
	}
	if !wants(s, c.options.Class) {
		if !isOfAnotherClass(s, c.options.Class) {
			if err := c.clear(ctx, s, ""); err != nil {
				return err // nobody else gets what the Service is still said to have
			}
		}
		c.free(key)
		return nil
	}
	if c.isAnothers(s) {
		c.free(key)
		return nil
	}
	r, err := request(s, c.labelsOf(s.Namespace))
	if err != nil {
		failed := c.fail(ctx, s, nil, err)
		if failed == nil {
			c.release(key)
		}
		return failed
	}
	before := c.allocator.Held(key)
	makesRoom := c.allocator.MakesRoom(r)
	got, lost, err := c.allocator.Ensure(r, assigned(s))
	if lost != nil || !slices.Equal(before.Addresses, got.Addresses) {
		c.counted(before.Pool)
		c.counted(got.Pool)
	}
	if makesRoom {
		defer c.retry()
	}
	if err != nil {
		err = c.fail(ctx, s, lost, err)
	} else {
		c.mu.Lock()
		delete(c.waiting, key)
		c.mu.Unlock()
		err = c.write(ctx, s, got, lost)
	}
	if err == nil && c.allocator.Written(key) {
		c.retry()
	}
	return err
}

// isAnothers reports whether somebody else gave the Service its addresses: they
// have no mark, and no pool has them. MetalLB's of before it had marks are in a pool.
func (c *Controller) isAnothers(s *corev1.Service) bool {
	_, marked := s.Annotations[v1beta1.AnnotationFromPool]
	has := s.Status.LoadBalancer.Ingress
	return !marked && len(has) > 0 && !slices.ContainsFunc(assigned(s), c.allocator.Knows)
}

// free takes back the addresses of a Service that is to have none.
func (c *Controller) free(key types.NamespacedName) {
	c.mu.Lock()
	delete(c.waiting, key)
	c.mu.Unlock()
	c.release(key)
}

// release takes back a Service's addresses, which others may wait for.
func (c *Controller) release(key types.NamespacedName) {
	pool := c.allocator.Held(key).Pool
	if written := c.allocator.Written(key); c.allocator.Free(key) || written {
		c.counted(pool)
		c.retry()
	}
}

// retry looks again at the Services that have no address.
func (c *Controller) retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.waiting {
		c.services.Add(key)
	}
}

// countDelay merges the counts of many Services into one write per pool.
const countDelay = 200 * time.Millisecond

func (c *Controller) counted(pool string) {
	if pool != "" {
		c.reports.AddAfter(pool, countDelay)
	}
}
