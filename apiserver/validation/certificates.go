package validation

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// minCertificateSeconds is the shortest life that may be asked for.
const minCertificateSeconds = 600

// keyUsages are what a certificate may be asked for.
var keyUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
	certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
	certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser, certificatesv1.UsageTimestamping,
	certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
}

// CertificateSigningRequest validates a CertificateSigningRequest.
func CertificateSigningRequest(c *certificatesv1.CertificateSigningRequest) field.ErrorList {
	errs := metadata(c, false, rbacName)
	if _, err := ParseCertificateRequest(c.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("request"), c.Spec.Request, err.Error()))
	}
	if len(c.Spec.Usages) == 0 {
		errs = append(errs, field.Required(specPath.Child("usages"), ""))
	}
	seen := map[certificatesv1.KeyUsage]bool{}
	for i, u := range c.Spec.Usages {
		if seen[u] {
			errs = append(errs, field.Duplicate(specPath.Child("usages").Index(i), u))
		}
		seen[u] = true
		if !slices.Contains(keyUsages, u) {
			errs = append(errs, field.NotSupported(specPath.Child("usages").Index(i), u, keyUsages))
		}
	}
	errs = append(errs, IsDomainPrefixed(specPath.Child("signerName"), c.Spec.SignerName)...)
	if s := c.Spec.ExpirationSeconds; s != nil && *s < minCertificateSeconds {
		errs = append(errs, field.Invalid(specPath.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// IsDomainPrefixed asks for a name such as kubernetes.io/kubelet-serving.
func IsDomainPrefixed(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return qualifiedName(path, name)
}

// ParseCertificateRequest reads a PEM encoded PKCS#10 request that is signed
// with its own key.
func ParseCertificateRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check signature of certificate request: %w", err)
	}
	return request, nil
}

// CertificateSigningRequestUpdate keeps everything that was asked for.
func CertificateSigningRequestUpdate(c, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return immutable(specPath, c.Spec, old.Spec)
}

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
