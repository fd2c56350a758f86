// Package nodelife marks silent machines. Agents renew a Lease in
// kube-node-lease. If a machine's Lease isn't renewed for a while, its Node is
// marked as not ready, with Kubernetes' taints, and its published endpoints and
// its Pods become not ready too. When the machine is back, all of it is undone.
// Package podgc deletes Pods that taints evict. A machine that died before its
// first Lease counts as silent, if an agent registered its Node; other Nodes
// without a Lease are ignored.
//
//   - controller.go: who is silent
//   - writes.go: whether anybody could be heard
//   - node.go: what the Node says then
//   - slices.go: what its endpoints say
//   - pods.go: what its Pods say
package nodelife

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/logdedup"
	"github.com/fairway-net/fairway/kube/ownnode"
)

// DefaultGrace is how long a machine may be silent.
const DefaultGrace = 10 * time.Second

const lookPeriod = time.Second

// Controller follows the machines' Leases.
type Controller struct {
	cluster *cluster.Cache
	grace   time.Duration
	log     *slog.Logger
	now     func() time.Time
	heard   map[string]heartbeat // by Node
	// writesFailing says that the API takes no writes, so that nobody can be heard.
	writesFailing bool
}

// heartbeat is the last that was heard of a machine. When is this process's
// time: the machine's clock may be off.
type heartbeat struct {
	renewed time.Time
	when    time.Time
}

// New returns the controller. A grace of 0 is DefaultGrace.
func New(c *cluster.Cache, grace time.Duration, log *slog.Logger) (*Controller, error) {
	if grace == 0 {
		grace = DefaultGrace
	}
	log = slog.New(logdedup.New(log.Handler()))
	return &Controller{cluster: c, grace: grace, log: log, now: time.Now, heard: map[string]heartbeat{}}, nil
}

// Run works until ctx is done. The cache must be complete.
func (c *Controller) Run(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(c.cluster.Client, 0, informers.WithNamespace(corev1.NamespaceNodeLease))
	leases := factory.Coordination().V1().Leases()
	store := leases.Informer().GetStore()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), leases.Informer().HasSynced) {
		return
	}
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		renewed := map[string]time.Time{}
		for _, obj := range store.List() {
			if lease, ok := obj.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
				renewed[lease.Name] = lease.Spec.RenewTime.Time
			}
		}
		if err := c.look(ctx, renewed); err != nil && ctx.Err() == nil {
			c.log.Warn("silent nodes could not be marked; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look compares all Nodes with their Leases' times once.
func (c *Controller) look(ctx context.Context, renewed map[string]time.Time) error {
	nodes, err := c.nodes()
	if err != nil {
		return err
	}
	now := c.now()
	c.listen(ctx, nodes, renewed, now)
	var errs []error
	for name, node := range nodes {
		last, known := c.heard[name]
		if !known {
			continue
		}
		silent := now.Sub(last.when) > c.grace
		if silent == isSilent(node) {
			continue
		}
		if err := c.mark(ctx, name, silent); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// listen takes in the Leases' times.
func (c *Controller) listen(ctx context.Context, nodes map[string]*corev1.Node, renewed map[string]time.Time, now time.Time) {
	for name := range c.heard {
		if _, there := nodes[name]; !there {
			delete(c.heard, name)
		}
	}
	overdue := false
	for name, node := range nodes {
		at, hasLease := renewed[name]
		if _, plain := node.Annotations[ownnode.ModeAnnotation]; !hasLease && !plain {
			continue
		}
		last, known := c.heard[name]
		if !known || !last.renewed.Equal(at) {
			last = heartbeat{renewed: at, when: now}
			c.heard[name] = last
		}
		overdue = overdue || now.Sub(last.when) > c.grace/2 && !isSilent(node)
	}
	if overdue || c.writesFailing {
		c.tryWriting(ctx, nodes, now)
	}
}

// mark makes a machine's endpoints, Pods and Node say whether it is silent. The
// Node comes last: it is what look goes by, so that a failure is made good.
func (c *Controller) mark(ctx context.Context, name string, silent bool) error {
	if err := c.markSlices(ctx, name, silent); err != nil {
		return fmt.Errorf("endpoints of node %s: %w", name, err)
	}
	if err := c.markPods(ctx, name, silent); err != nil {
		return fmt.Errorf("Pods of node %s: %w", name, err) //nolint:staticcheck // a kind's name
	}
	if err := c.markNode(ctx, name, silent); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if silent {
		c.log.Warn("node is silent: marked as not ready", "node", name, "grace", c.grace)
	} else {
		c.log.Info("node is back", "node", name)
	}
	return nil
}
