package gateway

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/watch"
)

// engine is a node that has one.
type engine struct {
	node      string
	addresses []netip.Addr
	kind      string // which engine it is
}

// watchEngines looks at Leases every few seconds and after changes of them.
func (c *Controller) watchEngines(ctx context.Context) {
	c.lookAtEngines(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
				c.lookAtEngines(ctx)
			}
		}
	}()
}

// lookAtEngines lists the Leases that hold. The renewals of Leases are not
// watched, since they would wake the controller all the time.
func (c *Controller) lookAtEngines(ctx context.Context) {
	leases, err := c.watch.Core.CoordinationV1().Leases(cmp.Or(c.options.Namespace, metav1.NamespaceSystem)).List(ctx, metav1.ListOptions{LabelSelector: watch.EngineLabel, ResourceVersion: "0"})
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("engines could not be listed; keeping the known ones", "err", err)
		}
		return
	}
	var list []engine
	for i := range leases.Items {
		if l := &leases.Items[i]; holds(l) {
			n, err := c.watch.Core.CoreV1().Nodes().Get(ctx, *l.Spec.HolderIdentity, metav1.GetOptions{ResourceVersion: "0"})
			if err != nil {
				continue // a node that isn't there has no addresses
			}
			list = append(list, engine{n.Name, internalAddresses(n), l.Annotations[engines.Annotation]})
		}
	}
	slices.SortFunc(list, func(a, b engine) int { return cmp.Compare(a.node, b.node) })
	c.mu.Lock()
	changed := !slices.EqualFunc(list, c.engines, func(a, b engine) bool {
		return a.node == b.node && a.kind == b.kind && slices.Equal(a.addresses, b.addresses)
	})
	c.mu.Unlock()
	if changed {
		c.setEngines(list)
	}
}

func holds(l *coordinationv1.Lease) bool {
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
		return false
	}
	return time.Since(l.Spec.RenewTime.Time) < time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second
}

func internalAddresses(n *corev1.Node) []netip.Addr {
	var list []netip.Addr
	for _, a := range n.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			list = append(list, addr)
		}
	}
	return list
}

func (c *Controller) setEngines(list []engine) {
	c.mu.Lock()
	c.engines = list
	c.mu.Unlock()
	c.watch.Wake()
}

func (c *Controller) liveEngines() []engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engines
}

// lacks is what some engine can't do: any of them may get the requests of a route.
func lacks(list []engine) *ingress.Lacks {
	for _, e := range list {
		if l := engines.Lacks(e.kind); l != nil {
			return l
		}
	}
	return nil
}
