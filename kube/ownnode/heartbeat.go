package ownnode

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

const (
	// heartbeatPeriod is how often a machine says that it lives: three times in
	// the grace that the server gives by default.
	heartbeatPeriod = 3 * time.Second
	// heartbeatSeconds is how long its Lease says that this holds.
	heartbeatSeconds = 10
)

// Heartbeat renews this machine's Lease in kube-node-lease until ctx is done.
// It goes with the Node.
func (m *Node) Heartbeat(ctx context.Context) {
	owned := func(l *coordinationv1.Lease) error {
		node, err := m.Client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
		if err != nil {
			return err // the next heartbeat finds it
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: node.UID}}
		return nil
	}
	lease.NewController(clock.RealClock{}, m.Client, m.Name, heartbeatSeconds, nil, heartbeatPeriod, m.Name, corev1.NamespaceNodeLease, owned).Run(ctx)
}
