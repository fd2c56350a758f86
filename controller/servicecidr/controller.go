// Package servicecidr keeps the objects that say where cluster IPs come from and who
// has them (KEP-1880): an IPAddress for every cluster IP, and the condition and the
// finalizer of ServiceCIDRs, whose removal waits until no address needs them.
//
//   - controller.go: what is watched;
//   - addresses.go: IPAddresses;
//   - ranges.go: ServiceCIDRs.
package servicecidr

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/queue"
)

// Name is the controller's, as kube-controller-manager has it.
const Name = "service-cidr-controller"

const (
	addressWorkers = 4
	// later is when an IPAddress is written after its Service: what packets wait for comes first.
	later = 100 * time.Millisecond
)

// Controller watches Services, IPAddresses and ServiceCIDRs.
type Controller struct {
	client    kubernetes.Interface
	informers cluster.Informers
	cidrs     networkinglisters.ServiceCIDRLister
	objects   networkinglisters.IPAddressLister
	addresses *queue.Queue[string]
	ranges    *queue.Queue[string]
	now       func() time.Time

	mu     sync.Mutex
	owners map[string]types.NamespacedName // of cluster IPs, as RFC 5952 spells them
}

// New returns the controller, its handlers added to c.
func New(c *cluster.Cache, log *slog.Logger) (*Controller, error) {
	controller := &Controller{client: c.Client, now: time.Now, owners: map[string]types.NamespacedName{}}
	networking := controller.informers.Of(c.Client, nil).Networking().V1()
	controller.cidrs, controller.objects = networking.ServiceCIDRs().Lister(), networking.IPAddresses().Lister()
	controller.addresses = queue.New(log, controller.syncAddress)
	controller.ranges = queue.New(log, controller.syncRange)
	if err := c.OnService(controller.serviceChanged); err != nil {
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	if err := controller.informers.Handle(networking.IPAddresses().Informer(), cluster.Change[networkingv1.IPAddress](controller.addressChanged)); err != nil {
		return nil, fmt.Errorf("watch IPAddresses: %w", err)
	}
	if err := controller.informers.Handle(networking.ServiceCIDRs().Informer(), cluster.Change[networkingv1.ServiceCIDR](controller.rangeChanged)); err != nil {
		return nil, fmt.Errorf("watch ServiceCIDRs: %w", err)
	}
	return controller, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	c.informers.Run(ctx, func() {
		var running sync.WaitGroup
		running.Go(func() { c.addresses.Run(ctx, addressWorkers) })
		running.Go(func() { c.ranges.Run(ctx, 1) })
		running.Wait()
	})
}

// serviceChanged notes whose the addresses are.
func (c *Controller) serviceChanged(old, new *corev1.Service) {
	before, after := clusterIPs(old), clusterIPs(new)
	if len(before)+len(after) == 0 {
		return
	}
	c.mu.Lock()
	for _, ip := range before {
		if c.owners[ip] == nameOf(old) {
			delete(c.owners, ip)
		}
	}
	for _, ip := range after {
		c.owners[ip] = nameOf(new)
	}
	c.mu.Unlock()
	for _, ip := range append(before, after...) {
		c.addresses.AddAfter(ip, later)
	}
}

func (c *Controller) addressChanged(old, new *networkingv1.IPAddress) {
	if new != nil {
		c.addresses.Add(new.Name)
		return
	}
	c.addresses.Add(old.Name)
	c.lookAtLeaving()
}

// rangeChanged looks at one range, and at those that wait for another to have
// their addresses.
func (c *Controller) rangeChanged(old, new *networkingv1.ServiceCIDR) {
	if new != nil {
		c.ranges.Add(new.Name)
	} else {
		c.ranges.Add(old.Name)
	}
	c.lookAtLeaving()
}
