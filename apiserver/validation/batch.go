package validation

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Job validates a Job.
func Job(j *batchv1.Job) field.ErrorList {
	return append(metadata(j, true, apivalidation.NameIsDNSSubdomain), jobSpec(specPath, &j.Spec)...)
}

func jobSpec(path *field.Path, s *batchv1.JobSpec) field.ErrorList {
	errs := notNegative(path.Child("parallelism"), s.Parallelism)
	errs = append(errs, notNegative(path.Child("completions"), s.Completions)...)
	errs = append(errs, notNegative(path.Child("backoffLimit"), s.BackoffLimit)...)
	pod := path.Child("template", "spec")
	errs = append(errs, PodSpec(pod, &s.Template.Spec)...)
	if p := s.Template.Spec.RestartPolicy; p != corev1.RestartPolicyNever && p != corev1.RestartPolicyOnFailure {
		errs = append(errs, field.NotSupported(pod.Child("restartPolicy"), p, []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}))
	}
	return errs
}

// CronJob validates a CronJob.
func CronJob(j *batchv1.CronJob) field.ErrorList {
	errs := metadata(j, true, apivalidation.NameIsDNSSubdomain)
	schedule := specPath.Child("schedule")
	switch fields := len(strings.Fields(j.Spec.Schedule)); {
	case fields == 0:
		errs = append(errs, field.Required(schedule, ""))
	case !strings.HasPrefix(j.Spec.Schedule, "@") && fields != 5:
		errs = append(errs, field.Invalid(schedule, j.Spec.Schedule, "must have five fields, or be one of @hourly, @daily, @weekly, @monthly, @yearly, @every DURATION"))
	}
	errs = append(errs, oneOf(specPath.Child("concurrencyPolicy"), j.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	return append(errs, jobSpec(specPath.Child("jobTemplate", "spec"), &j.Spec.JobTemplate.Spec)...)
}

// ReplicationController validates a ReplicationController.
func ReplicationController(r *corev1.ReplicationController) field.ErrorList {
	errs := metadata(r, true, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, notNegative(specPath.Child("replicas"), r.Spec.Replicas)...)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(specPath.Child("selector"), ""))
	}
	template := specPath.Child("template")
	if r.Spec.Template == nil {
		return append(errs, field.Required(template, ""))
	}
	if !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(r.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), r.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	return append(errs, PodSpec(template.Child("spec"), &r.Spec.Template.Spec)...)
}

// PodTemplate validates a PodTemplate.
func PodTemplate(p *corev1.PodTemplate) field.ErrorList {
	errs := metadata(p, true, apivalidation.NameIsDNSSubdomain)
	template := field.NewPath("template")
	errs = append(errs, metav1validation.ValidateLabels(p.Template.Labels, template.Child("metadata", "labels"))...)
	return append(errs, PodSpec(template.Child("spec"), &p.Template.Spec)...)
}

// PodDisruptionBudget validates a PodDisruptionBudget.
func PodDisruptionBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	errs := metadata(b, true, apivalidation.NameIsDNSSubdomain)
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	if least != nil && most != nil {
		errs = append(errs, field.Invalid(specPath.Child("maxUnavailable"), most.String(), "may not be set beside minAvailable"))
	}
	errs = append(errs, countOrPercent(specPath.Child("minAvailable"), least, true)...)
	errs = append(errs, countOrPercent(specPath.Child("maxUnavailable"), most, true)...)
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, oneOf(specPath.Child("unhealthyPodEvictionPolicy"), *p, policyv1.IfHealthyBudget, policyv1.AlwaysAllow)...)
	}
	if b.Spec.Selector == nil {
		return errs
	}
	return append(errs, metav1validation.ValidateLabelSelector(b.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, specPath.Child("selector"))...)
}
