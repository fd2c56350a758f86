package nodelife

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// probeLease, in kube-system, is written to find out whether Leases can be.
	probeLease = "fairway-node-lifecycle"
	// probeTime bounds that.
	probeTime = 2 * time.Second
)

// tryWriting finds out whether the API takes writes of Leases. While it doesn't, as
// when the disk is full or most servers are away, the silence of machines means
// nothing: it is counted anew from the last moment of that.
func (c *Controller) tryWriting(ctx context.Context, nodes map[string]*corev1.Node, now time.Time) {
	err := c.probe(ctx, now)
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		c.writesFailing = false
		return
	}
	if !c.writesFailing && ctx.Err() == nil {
		c.log.Warn("the API rejects writes; ignoring missed heartbeats until it recovers", "error", err)
	}
	c.writesFailing = true
	for name, last := range c.heard {
		if !isSilent(nodes[name]) {
			c.heard[name] = heartbeat{renewed: last.renewed, when: now}
		}
	}
}

func (c *Controller) probe(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	leases, at := c.cluster.Client.CoordinationV1().Leases(metav1.NamespaceSystem), metav1.NewMicroTime(now)
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, probeLease, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: probeLease}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return err
}
