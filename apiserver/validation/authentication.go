package validation

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	minTokenSeconds = 600
	maxTokenSeconds = 1 << 32
)

// TokenRequest validates a TokenRequest.
func TokenRequest(t *authenticationv1.TokenRequest) field.ErrorList {
	path := specPath.Child("expirationSeconds")
	switch seconds := *t.Spec.ExpirationSeconds; {
	case seconds < minTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > maxTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}
