package validation

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
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

// Scale validates a Scale.
func Scale(s *autoscalingv1.Scale) field.ErrorList {
	if s.Spec.Replicas < 0 {
		return field.ErrorList{field.Invalid(specPath.Child("replicas"), s.Spec.Replicas, fmt.Sprintf("must be greater than or equal to %d", 0))}
	}
	return nil
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
