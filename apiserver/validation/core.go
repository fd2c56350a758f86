package validation

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDataBytes bounds what a ConfigMap or Secret holds: etcd takes no more.
const maxDataBytes = 1 << 20

func isLabelValue(value string) []string { return validation.IsValidLabelValue(value) }

// Namespace validates a Namespace.
func Namespace(n *corev1.Namespace) field.ErrorList {
	errs := metadata(n, false, apivalidation.ValidateNamespaceName)
	for i, f := range n.Spec.Finalizers {
		errs = append(errs, qualifiedName(specPath.Child("finalizers").Index(i), string(f))...)
	}
	return errs
}

// NamespaceStatus validates a change of a Namespace's phase.
func NamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	path := statusPath.Child("Phase")
	if n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceActive {
		return field.ErrorList{field.Invalid(path, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	}
	if !n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceTerminating {
		return field.ErrorList{field.Invalid(path, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// Node validates a Node.
func Node(n *corev1.Node) field.ErrorList {
	errs := metadata(n, false, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, podCIDRs(n)...)
	for i, t := range n.Spec.Taints {
		path := specPath.Child("taints").Index(i)
		errs = append(errs, qualifiedName(path.Child("key"), t.Key)...)
		errs = append(errs, invalid(path.Child("value"), t.Value, isLabelValue(t.Value))...)
		errs = append(errs, oneOf(path.Child("effect"), t.Effect, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)...)
		for _, other := range n.Spec.Taints[:i] {
			if other.Key == t.Key && other.Effect == t.Effect {
				errs = append(errs, field.Duplicate(path, t))
			}
		}
	}
	return append(errs, nodeAddresses(n)...)
}

func podCIDRs(n *corev1.Node) field.ErrorList {
	path := specPath.Child("podCIDRs")
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, value := range n.Spec.PodCIDRs {
		bad := cidr(path.Index(i), value)
		errs = append(errs, bad...)
		if p, err := netip.ParsePrefix(value); err == nil {
			if families[p.Addr().Is4()] {
				errs = append(errs, field.Invalid(path, n.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family"))
			}
			families[p.Addr().Is4()] = true
		}
	}
	switch {
	case n.Spec.PodCIDR == "":
	case len(n.Spec.PodCIDRs) == 0:
		errs = append(errs, cidr(specPath.Child("podCIDR"), n.Spec.PodCIDR)...)
	case n.Spec.PodCIDRs[0] != n.Spec.PodCIDR:
		errs = append(errs, field.Invalid(path.Index(0), n.Spec.PodCIDRs[0], "must match `podCIDR`"))
	}
	return errs
}

func nodeAddresses(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for i, a := range n.Status.Addresses {
		path := statusPath.Child("addresses").Index(i)
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			_, bad := ip(path.Child("address"), a.Address)
			errs = append(errs, bad...)
		}
		for _, other := range n.Status.Addresses[:i] {
			if other == a {
				errs = append(errs, field.Duplicate(path, a))
			}
		}
	}
	return errs
}

// NodeUpdate validates a changed Node: its pod CIDRs stay, once it has some.
func NodeUpdate(n, old *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	if len(old.Spec.PodCIDRs) > 0 && !equality.Semantic.DeepEqual(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(specPath.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(specPath.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

// NodeStatus validates what a node reports of itself.
func NodeStatus(n, _ *corev1.Node) field.ErrorList { return nodeAddresses(n) }

// ServiceAccount validates a ServiceAccount.
func ServiceAccount(s *corev1.ServiceAccount) field.ErrorList {
	return metadata(s, true, apivalidation.ValidateServiceAccountName)
}

// ConfigMap validates a ConfigMap.
func ConfigMap(c *corev1.ConfigMap) field.ErrorList {
	errs := metadata(c, true, apivalidation.NameIsDNSSubdomain)
	size := 0
	for key, value := range c.Data {
		errs = append(errs, invalid(field.NewPath("data").Key(key), key, validation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > maxDataBytes {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxDataBytes))
	}
	return errs
}

// ConfigMapUpdate validates a changed ConfigMap.
func ConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	return immutableData(c.Immutable, old.Immutable, map[string]bool{
		"data":       equality.Semantic.DeepEqual(c.Data, old.Data),
		"binaryData": equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData),
	})
}

// Secret validates a Secret.
func Secret(s *corev1.Secret) field.ErrorList {
	errs := metadata(s, true, apivalidation.NameIsDNSSubdomain)
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, invalid(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > maxDataBytes {
		errs = append(errs, field.TooLong(data, "", maxDataBytes))
	}
	if s.Type == corev1.SecretTypeTLS {
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	return errs
}

// SecretUpdate validates a changed Secret.
func SecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := immutable(field.NewPath("type"), s.Type, old.Type)
	return append(errs, immutableData(s.Immutable, old.Immutable, map[string]bool{
		"data": equality.Semantic.DeepEqual(s.Data, old.Data),
	})...)
}

// immutableData refuses changes of what was declared immutable (KEP-1412).
func immutableData(now, before *bool, same map[string]bool) field.ErrorList {
	if before == nil || !*before {
		return nil
	}
	var errs field.ErrorList
	if now == nil || !*now {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	for name, unchanged := range same {
		if !unchanged {
			errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
		}
	}
	return errs
}

// Event validates an Event. Events are kept beside the object that they are
// about; those about cluster-scoped objects in the default namespace.
func Event(e *corev1.Event) field.ErrorList {
	errs := metadata(e, true, apivalidation.NameIsDNSSubdomain)
	about := e.InvolvedObject.Namespace
	if about != e.Namespace && (about != "" || e.Namespace != corev1.NamespaceDefault && e.Namespace != "kube-system") {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), about, fmt.Sprintf("does not match event.namespace %q", e.Namespace)))
	}
	return errs
}

// Binding validates the assignment of a Pod to a Node.
func Binding(b *corev1.Binding) field.ErrorList {
	target := field.NewPath("target")
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	return errs
}
