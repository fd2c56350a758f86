package nodelife

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// silentReason marks a Ready condition that this controller wrote.
const silentReason = "NodeStatusUnknown"

func (c *Controller) nodes() (map[string]*corev1.Node, error) {
	list, err := c.cluster.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	nodes := make(map[string]*corev1.Node, len(list))
	for _, n := range list {
		nodes[n.Name] = n
	}
	return nodes, nil
}

// isSilent reports whether a Node is marked as silent, in all its parts.
func isSilent(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Reason == silentReason
	})
	return ready || slices.ContainsFunc(n.Spec.Taints, isUnreachable)
}

func isUnreachable(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }

// markNode sets the taints first, then the condition.
func (c *Controller) markNode(ctx context.Context, name string, silent bool) error {
	nodes := c.cluster.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return isUnreachable(t) || t.Key == corev1.TaintNodeNotReady })
	now := metav1.Now()
	condition := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentRunning", Message: "the agent renews its Lease",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if silent {
		taints = append(taints,
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now},
			corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
		condition.Status, condition.Reason = corev1.ConditionUnknown, silentReason
		condition.Message = fmt.Sprintf("the agent hasn't renewed its Lease for %s", c.grace)
	}
	if silent && !slices.ContainsFunc(node.Spec.Taints, isUnreachable) || !silent && len(taints) != len(node.Spec.Taints) {
		node.Spec.Taints = taints
		if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set taints: %w", err)
		}
	}
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	node.Status.Conditions = append(node.Status.Conditions, condition)
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("set condition: %w", err)
	}
	return nil
}
