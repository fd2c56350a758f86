package defaults

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Job fills in a Job's defaults.
func Job(j *batchv1.Job) { jobSpec(&j.Spec) }

func jobSpec(s *batchv1.JobSpec) {
	if s.Completions == nil && s.Parallelism == nil {
		setPointer(&s.Completions, 1)
	}
	setPointer(&s.Parallelism, 1)
	setPointer(&s.BackoffLimit, 6)
	setPointer(&s.CompletionMode, batchv1.NonIndexedCompletion)
	setPointer(&s.Suspend, false)
	PodSpec(&s.Template.Spec)
}

// CronJob fills in a CronJob's defaults.
func CronJob(j *batchv1.CronJob) {
	setDefault(&j.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	setPointer(&j.Spec.Suspend, false)
	setPointer(&j.Spec.SuccessfulJobsHistoryLimit, 3)
	setPointer(&j.Spec.FailedJobsHistoryLimit, 1)
	jobSpec(&j.Spec.JobTemplate.Spec)
}

// PodTemplate fills in a PodTemplate's defaults.
func PodTemplate(p *corev1.PodTemplate) { PodSpec(&p.Template.Spec) }

// ReplicationController fills in a ReplicationController's defaults.
func ReplicationController(r *corev1.ReplicationController) {
	setPointer(&r.Spec.Replicas, 1)
	if r.Spec.Template == nil {
		return
	}
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = r.Spec.Template.Labels
	}
	if len(r.Labels) == 0 {
		r.Labels = r.Spec.Template.Labels
	}
	PodSpec(&r.Spec.Template.Spec)
}
