package agent

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// register makes the Node object of this machine, or brings its addresses up
// to date. Only where there is no kubelet to do it: on plain machines.
func register(ctx context.Context, client kubernetes.Interface, name string, addresses []netip.Addr, about aboutNode) error {
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, newNode(name), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", name, err)
	}
	if node, err = about.annotate(ctx, nodes, node); err != nil {
		return fmt.Errorf("annotate node %s: %w", name, err)
	}
	status := nodeStatus(name, addresses)
	status.NodeInfo.KubeletVersion = about.kubeletVersion()
	if reflect.DeepEqual(node.Status.Addresses, status.Addresses) && len(node.Status.Conditions) > 0 &&
		node.Status.NodeInfo.KubeletVersion == status.NodeInfo.KubeletVersion {
		return nil
	}
	node.Status.Addresses, node.Status.Conditions, node.Status.NodeInfo = status.Addresses, status.Conditions, status.NodeInfo
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("register addresses of node %s: %w", name, err)
	}
	return nil
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}}}
}

func nodeStatus(name string, addresses []netip.Addr) corev1.NodeStatus {
	status := corev1.NodeStatus{
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "AgentRunning",
			Message: "the Fairway agent programs this node", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		}},
	}
	for _, a := range addresses {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	return status
}
