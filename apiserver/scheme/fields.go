package scheme

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fieldLabels are the field selectors beyond metadata.name and
// metadata.namespace that Kubernetes documents for each kind.
var fieldLabels = map[schema.GroupVersionKind][]string{
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
	},
	corev1.SchemeGroupVersion.WithKind("Service"):                           {"spec.clusterIP", "spec.type"},
	corev1.SchemeGroupVersion.WithKind("Node"):                              {"spec.unschedulable"},
	corev1.SchemeGroupVersion.WithKind("Namespace"):                         {"status.phase"},
	corev1.SchemeGroupVersion.WithKind("Secret"):                            {"type"},
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): {"spec.signerName"},
	corev1.SchemeGroupVersion.WithKind("Event"): {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
		"reason", "reportingComponent", "source", "type",
	},
}

func addFieldLabels(s *runtime.Scheme) error {
	for gvk, labels := range fieldLabels {
		known := map[string]bool{"metadata.name": true, "metadata.namespace": true}
		for _, l := range labels {
			known[l] = true
		}
		kind := gvk.Kind
		err := s.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
			// The old name of a Node's field selector, kept by kubectl.
			if label == "spec.host" && kind == "Pod" {
				return "spec.nodeName", value, nil
			}
			if !known[label] {
				return "", "", fmt.Errorf("field label not supported: %s", label)
			}
			return label, value, nil
		})
		if err != nil {
			return fmt.Errorf("register field selectors of %s: %w", gvk, err)
		}
	}
	return nil
}
