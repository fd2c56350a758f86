package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/watch"
	"github.com/fairway-net/fairway/internal/machineuser"
)

// renewal is how often the Lease is renewed; it holds four times as long.
const renewal = 10 * time.Second

// lease is what says that a node has an engine.
type lease struct {
	core                  kubernetes.Interface
	namespace, node, kind string
	log                   *slog.Logger
	unserved              func() string // what could not be opened
	changed               <-chan struct{}
}

func (n *lease) name() string { return machineuser.GatewayLease(n.node) }

// begin keeps the Lease until the function that it returns is called; without one,
// there is nothing to do.
func (n *lease) begin(ctx context.Context) (end func()) {
	if n == nil {
		return func() {}
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { n.keep(keeping) })
	return func() { stop(); ended.Wait() }
}

// keep says that this node has an engine, until ctx is done. After that, release
// says that it has none, or another process goes on.
func (n *lease) keep(ctx context.Context) {
	for {
		if err := n.renew(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the Lease of this process could not be renewed; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-time.After(renewal):
		}
	}
}

func (n *lease) renew(ctx context.Context) error {
	leases := n.core.CoordinationV1().Leases(n.namespace)
	now, duration := metav1.NowMicro(), int32(4*renewal/time.Second)
	l, err := leases.Get(ctx, n.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name(), Labels: map[string]string{watch.EngineLabel: "true"}, Annotations: n.annotations(nil)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &n.node, RenewTime: &now, LeaseDurationSeconds: &duration},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	l.Annotations = n.annotations(l.Annotations)
	if l.Labels == nil {
		l.Labels = map[string]string{}
	}
	l.Labels[watch.EngineLabel] = "true" // by which the controller finds it, whoever took it away
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &n.node, &now, &duration
	_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// annotations say which engine it is, and what it doesn't serve.
func (n *lease) annotations(all map[string]string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	all[engines.Annotation] = n.kind
	delete(all, engines.AnnotationUnserved)
	if text := n.unserved(); text != "" {
		all[engines.AnnotationUnserved] = text
	}
	return all
}

// release says that the engine is gone, so that nobody waits for the Lease to end.
func (n *lease) release() {
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := n.core.CoordinationV1().Leases(n.namespace).Delete(ctx, n.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		n.log.Warn("the Lease of this process could not be deleted; it expires by itself", "error", err)
	}
}

// zone is that of this node, "" if nobody knows.
func (g *gateway) zone(ctx context.Context) string {
	n, err := g.watch.Core.CoreV1().Nodes().Get(ctx, g.config.Node, metav1.GetOptions{})
	if err != nil {
		g.log.Warn("the node's zone was not found; endpoints of all zones are treated alike", "node", g.config.Node, "error", err)
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}
