package validation

import (
	"encoding/json"
	"fmt"

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
	return append(errs, secretOfType(s)...)
}

// secretOfType asks for what a Secret's type says that it holds.
func secretOfType(s *corev1.Secret) (errs field.ErrorList) {
	data := field.NewPath("data")
	require := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	requireJSON := func(key string) {
		if value, ok := s.Data[key]; ok && !json.Valid(value) {
			errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", "must be JSON"))
		}
		require(key)
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(metadataPath.Child("annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeTLS:
		require(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	case corev1.SecretTypeSSHAuth:
		require(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeBasicAuth: // one of them may be left out
		if _, ok := s.Data[corev1.BasicAuthUsernameKey]; !ok {
			if _, ok := s.Data[corev1.BasicAuthPasswordKey]; !ok {
				require(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
			}
		}
	case corev1.SecretTypeDockercfg:
		requireJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		requireJSON(corev1.DockerConfigJsonKey)
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
