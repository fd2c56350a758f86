package lab

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/fairway-net/fairway/lab/topology"
)

// registerNode makes the Node object of a node of the lab, as a kubelet would.
func registerNode(ctx context.Context, client kubernetes.Interface, n *topology.Node, zone string) error {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname:     n.Name,
			corev1.LabelTopologyZone: zone,
			corev1.LabelOSStable:     runtime.GOOS,
			corev1.LabelArchStable:   runtime.GOARCH,
		}},
		Spec: corev1.NodeSpec{PodCIDR: n.PodCIDRs[0].String(), PodCIDRs: texts(n.PodCIDRs)},
	}
	_, err := client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write to new nodes too
		created, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		created.Status = nodeStatus(n)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("register the status of node %s: %w", n.Name, err)
	}
	return nil
}

func nodeStatus(n *topology.Node) corev1.NodeStatus {
	now := metav1.Now()
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(fmt.Sprint(topology.PodsPerNode))}
	s := corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, KubeletVersion: "fairway-lab"},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "LabReady", Message: "the lab runs this node's pods",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}
	for _, a := range n.Addresses {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
	return s
}

// texts writes prefixes out.
func texts(prefixes []netip.Prefix) []string {
	list := make([]string, len(prefixes))
	for i, p := range prefixes {
		list[i] = p.String()
	}
	return list
}
