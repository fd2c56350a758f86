package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ingress "github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/watch"
)

// engine is a node that has one.
type engine struct {
	node      string
	addresses []netip.Addr
	kind      string            // which engine it is
	unserved  map[string]string // ports that it can't open, "namespace/gateway:port", and why
}

// sighting is when a Lease was last seen to be renewed. The time in the Lease is
// another clock's, which may be wrong: only that it changes counts.
type sighting struct {
	renewed metav1.MicroTime
	at      time.Time
}

const (
	lookEvery = time.Second
	// gap is how long the API may be silent before nobody's Lease ends for it.
	gap = 3 * lookEvery
)

// watchEngines looks at Leases every few seconds and after changes of them.
func (c *Controller) watchEngines(ctx context.Context) {
	c.lookAtEngines(ctx, time.Now())
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery):
				c.lookAtEngines(ctx, time.Now())
			}
		}
	}()
}

// lookAtEngines lists the Leases that hold. The renewals of Leases are not
// watched, since they would wake the controller all the time.
func (c *Controller) lookAtEngines(ctx context.Context, now time.Time) {
	leases, err := c.watch.Core.CoordinationV1().Leases(cmp.Or(c.options.Namespace, metav1.NamespaceSystem)).List(ctx, metav1.ListOptions{LabelSelector: watch.EngineLabel, ResourceVersion: "0"})
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("engines could not be listed; keeping the known ones", "error", err)
		}
		return
	}
	if now.Sub(c.looked) > gap { // while the API was away, nobody could renew
		for name, s := range c.seen {
			s.at = now
			c.seen[name] = s
		}
	}
	c.looked = now
	seen := map[string]sighting{}
	var list []engine
	for i := range leases.Items {
		l := &leases.Items[i]
		if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil {
			continue
		}
		s, known := c.seen[l.Name]
		if !known || !s.renewed.Equal(l.Spec.RenewTime) {
			s = sighting{*l.Spec.RenewTime, now}
		}
		if seen[l.Name] = s; now.Sub(s.at) >= time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second {
			continue
		}
		if e, found := c.engineOf(ctx, l); found {
			list = append(list, e)
		}
	}
	c.seen = seen
	slices.SortFunc(list, func(a, b engine) int { return cmp.Compare(a.node, b.node) })
	changed := !slices.EqualFunc(list, c.liveEngines(), func(a, b engine) bool {
		return a.node == b.node && a.kind == b.kind && slices.Equal(a.addresses, b.addresses) && maps.Equal(a.unserved, b.unserved)
	})
	if changed {
		c.setEngines(list)
	}
}

// engineOf is the engine that a Lease stands for. A node that can't be read has the
// addresses that it had; one that isn't there has none.
func (c *Controller) engineOf(ctx context.Context, l *coordinationv1.Lease) (engine, bool) {
	e := engine{node: *l.Spec.HolderIdentity, kind: l.Annotations[engines.Annotation]}
	if text := l.Annotations[engines.AnnotationUnserved]; text != "" {
		if err := json.Unmarshal([]byte(text), &e.unserved); err != nil {
			c.log.Warn("an engine's list of what it doesn't serve could not be read", "lease", l.Name, "error", err)
		}
	}
	n, err := c.watch.Core.CoreV1().Nodes().Get(ctx, e.node, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case err == nil:
		e.addresses = internalAddresses(n)
		return e, true
	case apierrors.IsNotFound(err):
		return e, false
	}
	for _, known := range c.liveEngines() {
		if known.node == e.node {
			e.addresses = known.addresses
			return e, true
		}
	}
	return e, false
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
