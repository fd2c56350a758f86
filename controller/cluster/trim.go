package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/kube/ownnode"
)

// Trim drops from an object what no controller here reads, before it is kept:
// with 100,000 Pods the rest is most of the memory.
func Trim(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return trimPod(o), nil
	case *corev1.Node:
		return trimNode(o), nil
	}
	// The others are written back, and so kept whole. Without managed fields
	// in an update the server keeps those it has.
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

func trimPod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			Labels:            pod.Labels,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			Hostname:       pod.Spec.Hostname,
			Subdomain:      pod.Spec.Subdomain,
			Containers:     namedPorts(pod.Spec.Containers, false),
			InitContainers: namedPorts(pod.Spec.InitContainers, true),
		},
		Status: corev1.PodStatus{
			Phase:      pod.Status.Phase,
			PodIP:      pod.Status.PodIP,
			PodIPs:     pod.Status.PodIPs,
			Conditions: conditionReady(pod.Status.Conditions),
		},
	}
}

// namedPorts keeps what a named target port is looked up in: one container
// with the named ports of all; or, of init containers, of those that are
// sidecars (KEP-753).
func namedPorts(containers []corev1.Container, init bool) []corev1.Container {
	var kept corev1.Container
	for _, c := range containers {
		if init && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
			continue
		}
		kept.RestartPolicy = c.RestartPolicy
		for _, port := range c.Ports {
			if port.Name != "" {
				kept.Ports = append(kept.Ports, port)
			}
		}
	}
	if len(kept.Ports) == 0 {
		return nil
	}
	return []corev1.Container{kept}
}

func conditionReady(conditions []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return nil
}

func trimNode(node *corev1.Node) *corev1.Node {
	kept := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		UID:             node.UID,
		ResourceVersion: node.ResourceVersion,
		Labels:          node.Labels,
	}}
	kept.DeletionTimestamp, kept.Status.Addresses = node.DeletionTimestamp, node.Status.Addresses
	if mode, plain := node.Annotations[ownnode.ModeAnnotation]; plain {
		kept.Annotations = map[string]string{ownnode.ModeAnnotation: mode}
	}
	if cpu, ok := node.Status.Allocatable[corev1.ResourceCPU]; ok {
		kept.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	kept.Spec.Taints, kept.Status.NodeInfo.KubeletVersion = node.Spec.Taints, node.Status.NodeInfo.KubeletVersion
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		}
	}
	return kept
}
