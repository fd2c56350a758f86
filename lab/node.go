package lab

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/fairway-net/fairway/apiserver"
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
	room := capacity()
	s := corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		NodeInfo: nodeInfo(),
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

// capacity is what a node has: all of the machine, which the nodes share.
func capacity() corev1.ResourceList {
	room := corev1.ResourceList{
		corev1.ResourcePods: *resource.NewQuantity(topology.PodsPerNode, resource.DecimalSI),
		corev1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		room[corev1.ResourceMemory] = *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI)
	}
	return room
}

// nodeInfo is what `kubectl get nodes -o wide` shows of a node's software.
func nodeInfo() corev1.NodeSystemInfo {
	i := corev1.NodeSystemInfo{
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		KubeletVersion: apiserver.KubernetesVersion, ContainerRuntimeVersion: "fairway-lab://" + strings.TrimPrefix(apiserver.KubernetesVersion, "v"),
		OSImage: "network namespaces of " + runtime.GOOS,
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err == nil {
		i.KernelVersion = unix.ByteSliceToString(uts.Release[:])
	}
	return i
}

// texts writes prefixes out.
func texts(prefixes []netip.Prefix) []string {
	list := make([]string, len(prefixes))
	for i, p := range prefixes {
		list[i] = p.String()
	}
	return list
}
