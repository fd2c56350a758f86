package gateway

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/watch"
)

// renewal is how often the Lease is renewed; it holds four times as long.
const renewal = 10 * time.Second

// lease says that this node has an engine, until ctx is done. After that, release
// says that it has none, or another process goes on.
func (g *gateway) lease(ctx context.Context) {
	for {
		if err := g.renew(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("Lease not renewed; trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
	}
}

func (g *gateway) renew(ctx context.Context) error {
	leases := g.watch.Core.CoordinationV1().Leases(g.config.Namespace)
	now, duration := metav1.NowMicro(), int32(4*renewal/time.Second)
	l, err := leases.Get(ctx, g.name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: g.name(), Labels: map[string]string{watch.EngineLabel: "true"}, Annotations: map[string]string{engines.Annotation: g.kind()}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &g.config.Node, RenewTime: &now, LeaseDurationSeconds: &duration},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[engines.Annotation] = g.kind()
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &g.config.Node, &now, &duration
	_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// release says that the engine is gone, so that nobody waits for the Lease to end.
func (g *gateway) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := g.watch.Core.CoordinationV1().Leases(g.config.Namespace).Delete(ctx, g.name(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		g.log.Warn("Lease not deleted; it expires by itself", "err", err)
	}
}

// zone is that of this node, "" if nobody knows.
func (g *gateway) zone(ctx context.Context) string {
	n, err := g.watch.Core.CoreV1().Nodes().Get(ctx, g.config.Node, metav1.GetOptions{})
	if err != nil {
		g.log.Warn("zone of the node not found; endpoints of all zones are treated alike", "node", g.config.Node, "err", err)
		return ""
	}
	return n.Labels[corev1.LabelTopologyZone]
}
