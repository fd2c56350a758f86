package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/lab/topology"
)

// Heartbeats as kubelets send them, but more often: a controller may take a
// machine for silent after ten seconds.
const (
	beatInterval = 2 * time.Second
	leaseSeconds = 40
)

// Beat renews the Leases of all nodes until ctx is done, but not while a node is
// cut off. Where nobody needs them, they begin with the first node that is broken:
// a node that never had a Lease is never taken for silent.
func (k *Kubelet) Beat(ctx context.Context) {
	for _, n := range k.nodes {
		k.beat(ctx, n)
	}
}

// beat renews a node's Lease from now on. Again does nothing.
func (k *Kubelet) beat(ctx context.Context, node *topology.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.beating[node.Name] {
		return
	}
	k.beating[node.Name] = true
	k.running.Go(func() {
		for {
			if mended, is := k.cutOff(node.Name); is {
				select {
				case <-mended:
				case <-ctx.Done():
					return
				}
			}
			if err := k.renew(ctx, node.Name); err != nil && ctx.Err() == nil {
				slog.Warn("the node's Lease could not be renewed; trying again", "error", err)
			}
			if !sleep(ctx, beatInterval) {
				return
			}
		}
	})
}

// renew renews a node's Lease, or makes it.
func (k *Kubelet) renew(ctx context.Context, node string) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object, err := k.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read node %s: %w", node, err)
		}
		lease = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: corev1.NamespaceNodeLease, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID},
			}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: &now},
		}
		if _, err := leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create lease of node %s: %w", node, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read lease of node %s: %w", node, err)
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsConflict(err) { // it was renewed just now
		return fmt.Errorf("renew lease of node %s: %w", node, err)
	}
	return nil
}
