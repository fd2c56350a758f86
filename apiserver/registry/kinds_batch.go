package registry

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func jobs() *kind[batchv1.Job, *batchv1.Job] {
	return &kind[batchv1.Job, *batchv1.Job]{
		version: batchv1.SchemeGroupVersion, resource: "jobs", singular: "job", categories: []string{"all"},
		list:          func() runtime.Object { return &batchv1.JobList{} },
		prepareCreate: func(j *batchv1.Job) { j.Status = batchv1.JobStatus{} },
		prepareUpdate: func(j, old *batchv1.Job) { j.Status = old.Status },
		generation:    func(j, old *batchv1.Job) bool { return !equality.Semantic.DeepEqual(j.Spec, old.Spec) },
		validate:      validation.Job,
		idle:          noActor("Job", "and no pod of it is made; the lab runs Deployments"),
		status:        &status[batchv1.Job, *batchv1.Job]{keep: func(j, old *batchv1.Job) { j.Spec = old.Spec }},
		table:         tables.Jobs(),
	}
}

func cronJobs() *kind[batchv1.CronJob, *batchv1.CronJob] {
	return &kind[batchv1.CronJob, *batchv1.CronJob]{
		version: batchv1.SchemeGroupVersion, resource: "cronjobs", singular: "cronjob",
		shortNames: []string{"cj"}, categories: []string{"all"},
		list:          func() runtime.Object { return &batchv1.CronJobList{} },
		prepareCreate: func(j *batchv1.CronJob) { j.Status = batchv1.CronJobStatus{} },
		prepareUpdate: func(j, old *batchv1.CronJob) { j.Status = old.Status },
		generation:    func(j, old *batchv1.CronJob) bool { return !equality.Semantic.DeepEqual(j.Spec, old.Spec) },
		validate:      validation.CronJob,
		idle:          noActor("CronJob", "and no Job of it is made; a systemd timer of the machine does the same"),
		status:        &status[batchv1.CronJob, *batchv1.CronJob]{keep: func(j, old *batchv1.CronJob) { j.Spec = old.Spec }},
		table:         tables.CronJobs(),
	}
}

func replicationControllers() *kind[corev1.ReplicationController, *corev1.ReplicationController] {
	return &kind[corev1.ReplicationController, *corev1.ReplicationController]{
		version: corev1.SchemeGroupVersion, resource: "replicationcontrollers", singular: "replicationcontroller",
		shortNames: []string{"rc"}, categories: []string{"all"},
		list:          func() runtime.Object { return &corev1.ReplicationControllerList{} },
		prepareCreate: func(r *corev1.ReplicationController) { r.Status = corev1.ReplicationControllerStatus{} },
		prepareUpdate: func(r, old *corev1.ReplicationController) { r.Status = old.Status },
		generation:    func(r, old *corev1.ReplicationController) bool { return !equality.Semantic.DeepEqual(r.Spec, old.Spec) },
		validate:      validation.ReplicationController,
		idle:          noActor("ReplicationController", "and no pod of it is made; the lab runs Deployments and ReplicaSets"),
		status: &status[corev1.ReplicationController, *corev1.ReplicationController]{
			keep: func(r, old *corev1.ReplicationController) { r.Spec = old.Spec },
		},
		table: tables.ReplicationControllers(),
	}
}

func podTemplates() *kind[corev1.PodTemplate, *corev1.PodTemplate] {
	return &kind[corev1.PodTemplate, *corev1.PodTemplate]{
		version: corev1.SchemeGroupVersion, resource: "podtemplates", singular: "podtemplate",
		list:       func() runtime.Object { return &corev1.PodTemplateList{} },
		generation: func(p, old *corev1.PodTemplate) bool { return !equality.Semantic.DeepEqual(p.Template, old.Template) },
		validate:   validation.PodTemplate,
		idle:       noActor("PodTemplate", "and no pod of it is made; the lab runs Deployments and ReplicaSets"),
		table:      tables.PodTemplates(),
	}
}

func disruptionBudgets() *kind[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget] {
	type budget = *policyv1.PodDisruptionBudget
	return &kind[policyv1.PodDisruptionBudget, budget]{
		version: policyv1.SchemeGroupVersion, resource: "poddisruptionbudgets", singular: "poddisruptionbudget",
		shortNames:    []string{"pdb"},
		list:          func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		prepareCreate: func(b budget) { b.Status = policyv1.PodDisruptionBudgetStatus{} },
		prepareUpdate: func(b, old budget) { b.Status = old.Status },
		generation:    func(b, old budget) bool { return !equality.Semantic.DeepEqual(b.Spec, old.Spec) },
		validate:      validation.PodDisruptionBudget,
		status: &status[policyv1.PodDisruptionBudget, budget]{
			keep: func(b, old budget) { b.Spec = old.Spec },
		},
		table: tables.PodDisruptionBudgets(),
	}
}
