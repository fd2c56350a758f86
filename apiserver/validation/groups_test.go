package validation

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func hasField(errs field.ErrorList, name string) bool {
	for _, err := range errs {
		if err.Field == name {
			return true
		}
	}
	return false
}

// TestIngressClassParameters: the reference to parameters is refused by the field's name.
func TestIngressClassParameters(t *testing.T) {
	cluster, other, text := "Cluster", "Other", "a/b"
	for want, p := range map[string]networkingv1.IngressClassParametersReference{
		"spec.parameters.apiGroup":  {APIGroup: &text, Kind: "A", Name: "a", Scope: &cluster},
		"spec.parameters.kind":      {Name: "a", Scope: &cluster},
		"spec.parameters.name":      {Kind: "A", Name: text, Scope: &cluster},
		"spec.parameters.scope":     {Kind: "A", Name: "a", Scope: &other},
		"spec.parameters.namespace": {Kind: "A", Name: "a", Scope: &cluster, Namespace: &text},
	} {
		class := &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "example.com/a", Parameters: &p}}
		class.Name = "class"
		if errs := IngressClass(class); len(errs) != 1 || !hasField(errs, want) {
			t.Errorf("%s: %v", want, errs)
		}
	}
}

// TestKeyUsages: a usage that there is not is refused.
func TestKeyUsages(t *testing.T) {
	request := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{Usages: []certificatesv1.KeyUsage{"client auth", "tcp"}}}
	if errs := CertificateSigningRequest(request); !hasField(errs, "spec.usages[1]") || hasField(errs, "spec.usages[0]") {
		t.Error(errs)
	}
}
