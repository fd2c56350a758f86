package validation

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Approval validates a change through the approval subresource.
func Approval(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	path := statusPath.Child("conditions")
	var errs field.ErrorList
	decided := map[certificatesv1.RequestConditionType]bool{}
	for i, condition := range c.Status.Conditions {
		at := path.Index(i)
		if condition.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		errs = append(errs, oneOf(at.Child("status"), condition.Status, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)...)
		decided[condition.Type] = true
		final := condition.Type == certificatesv1.CertificateApproved || condition.Type == certificatesv1.CertificateDenied
		if final && condition.Status != corev1.ConditionTrue {
			errs = append(errs, field.Invalid(at.Child("status"), condition.Status, "may only be True"))
		}
	}
	if decided[certificatesv1.CertificateApproved] && decided[certificatesv1.CertificateDenied] {
		errs = append(errs, field.Invalid(path, c.Status.Conditions, "Approved and Denied conditions are mutually exclusive"))
	}
	for _, condition := range old.Status.Conditions {
		final := condition.Type == certificatesv1.CertificateApproved || condition.Type == certificatesv1.CertificateDenied
		if final && !decided[condition.Type] {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", condition.Type)))
		}
	}
	return errs
}

// IssuedCertificate validates a change through the status subresource.
func IssuedCertificate(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := Approval(c, old)
	path := statusPath.Child("certificate")
	if len(old.Status.Certificate) > 0 && !equality.Semantic.DeepEqual(c.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(path, "updates may not set certificate content to a different value"))
	}
	if len(c.Status.Certificate) == 0 {
		return errs
	}
	block, _ := pem.Decode(c.Status.Certificate)
	if block == nil || block.Type != "CERTIFICATE" {
		return append(errs, field.Invalid(path, "<certificate data>", "must contain at least one CERTIFICATE PEM block"))
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		errs = append(errs, field.Invalid(path, "<certificate data>", err.Error()))
	}
	return errs
}
