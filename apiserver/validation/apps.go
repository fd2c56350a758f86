package validation

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Deployment validates a Deployment.
func Deployment(d *appsv1.Deployment) field.ErrorList {
	errs := metadata(d, true, apivalidation.NameIsDNSSubdomain)
	spec := &d.Spec
	errs = append(errs, notNegative(specPath.Child("replicas"), spec.Replicas)...)
	errs = append(errs, selectorAndTemplate(spec.Selector, &spec.Template)...)
	errs = append(errs, deploymentStrategy(specPath.Child("strategy"), &spec.Strategy)...)
	errs = append(errs, notNegative(specPath.Child("minReadySeconds"), &spec.MinReadySeconds)...)
	errs = append(errs, notNegative(specPath.Child("revisionHistoryLimit"), spec.RevisionHistoryLimit)...)
	deadline := specPath.Child("progressDeadlineSeconds")
	errs = append(errs, notNegative(deadline, spec.ProgressDeadlineSeconds)...)
	if s := spec.ProgressDeadlineSeconds; s != nil && *s <= spec.MinReadySeconds {
		errs = append(errs, field.Invalid(deadline, *s, "must be greater than minReadySeconds"))
	}
	return errs
}

func notNegative(path *field.Path, n *int32) field.ErrorList {
	if n == nil {
		return nil
	}
	return apivalidation.ValidateNonnegativeField(int64(*n), path)
}

// selectorAndTemplate requires a selector that selects its own Pods.
func selectorAndTemplate(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) field.ErrorList {
	path := specPath.Child("selector")
	if selector == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, selector, "empty selector is invalid for deployment"))
	}
	templatePath := specPath.Child("template")
	if s, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		errs = append(errs, field.Invalid(path, selector, "invalid label selector"))
	} else if !s.Empty() && !s.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(templatePath.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, templatePath.Child("metadata", "labels"))...)
	errs = append(errs, PodSpec(templatePath.Child("spec"), &template.Spec)...)
	if p := template.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(templatePath.Child("spec", "restartPolicy"), p, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(templatePath.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported"))
	}
	return errs
}

func deploymentStrategy(path *field.Path, s *appsv1.DeploymentStrategy) field.ErrorList {
	errs := oneOf(path.Child("type"), s.Type, appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType)
	rolling := path.Child("rollingUpdate")
	if s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil {
		errs = append(errs, field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"))
	}
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return errs
	}
	if s.RollingUpdate == nil {
		return append(errs, field.Required(rolling, "this should be defaulted and never be nil"))
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	errs = append(errs, countOrPercent(rolling.Child("maxUnavailable"), unavailable, true)...)
	errs = append(errs, countOrPercent(rolling.Child("maxSurge"), surge, false)...)
	if isZero(unavailable) && isZero(surge) {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return errs
}

func isZero(v *intstr.IntOrString) bool {
	return v != nil && (*v == intstr.FromInt32(0) || *v == intstr.FromString("0%"))
}

func countOrPercent(path *field.Path, v *intstr.IntOrString, atMostAll bool) field.ErrorList {
	if v == nil {
		return nil
	}
	if v.Type == intstr.Int {
		return apivalidation.ValidateNonnegativeField(int64(v.IntVal), path)
	}
	number, ok := strings.CutSuffix(v.StrVal, "%")
	percent, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil {
		return field.ErrorList{field.Invalid(path, v, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')")}
	}
	if atMostAll && percent > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

// DeploymentUpdate validates a changed Deployment.
func DeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return immutable(specPath.Child("selector"), d.Spec.Selector, old.Spec.Selector)
}

// DeploymentStatus validates what a controller reports of a Deployment.
func DeploymentStatus(d, _ *appsv1.Deployment) field.ErrorList {
	var errs field.ErrorList
	s := &d.Status
	for name, n := range map[string]int32{
		"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas,
		"availableReplicas": s.AvailableReplicas, "unavailableReplicas": s.UnavailableReplicas,
	} {
		errs = append(errs, notNegative(statusPath.Child(name), &n)...)
		if name != "unavailableReplicas" && n > s.Replicas {
			errs = append(errs, field.Invalid(statusPath.Child(name), n, "cannot be greater than status.replicas"))
		}
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(statusPath.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

// ReplicaSet validates a ReplicaSet.
func ReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	errs := metadata(r, true, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, notNegative(specPath.Child("replicas"), r.Spec.Replicas)...)
	return append(errs, selectorAndTemplate(r.Spec.Selector, &r.Spec.Template)...)
}

// ReplicaSetUpdate validates a changed ReplicaSet.
func ReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	return immutable(specPath.Child("selector"), r.Spec.Selector, old.Spec.Selector)
}

// Scale validates a Scale.
func Scale(s *autoscalingv1.Scale) field.ErrorList {
	if s.Spec.Replicas < 0 {
		return field.ErrorList{field.Invalid(specPath.Child("replicas"), s.Spec.Replicas, fmt.Sprintf("must be greater than or equal to %d", 0))}
	}
	return nil
}
