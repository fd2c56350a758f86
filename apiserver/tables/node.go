package tables

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Nodes prints Nodes.
func Nodes() rest.TableConvertor {
	return of(func(n *corev1.Node) []any {
		info := n.Status.NodeInfo
		return []any{
			n.Name, nodeStatus(n), nodeRoles(n), age(n.CreationTimestamp), info.KubeletVersion,
			nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
			or(info.OSImage, "<unknown>"), or(info.KernelVersion, "<unknown>"), or(info.ContainerRuntimeVersion, "<unknown>"),
		}
	}, column("Name", "string"), column("Status", "string"), column("Roles", "string"), column("Age", "string"), column("Version", "string"),
		wide("Internal-IP", "string"), wide("External-IP", "string"), wide("OS-Image", "string"), wide("Kernel-Version", "string"), wide("Container-Runtime", "string"))
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *corev1.Node) string {
	var roles []string
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if label == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return or(strings.Join(slices.Compact(roles), ","), none)
}

func nodeAddress(n *corev1.Node, typ corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == typ {
			return a.Address
		}
	}
	return none
}

// Namespaces prints Namespaces.
func Namespaces() rest.TableConvertor {
	return of(func(n *corev1.Namespace) []any {
		return []any{n.Name, string(n.Status.Phase), age(n.CreationTimestamp)}
	}, column("Name", "string"), column("Status", "string"), column("Age", "string"))
}
