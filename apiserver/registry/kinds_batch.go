package registry

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func jobs() *kind[batchv1.Job, *batchv1.Job] {
	return &kind[batchv1.Job, *batchv1.Job]{
		version: batchv1.SchemeGroupVersion, resource: "jobs", singular: "job", categories: []string{"all"},
		list:  func() runtime.Object { return &batchv1.JobList{} },
		rules: upstream.Jobs,
		idle:  noActor("Job", "and no pod of it is made; the lab runs Deployments"),
		table: tables.Jobs(),
	}
}

func cronJobs() *kind[batchv1.CronJob, *batchv1.CronJob] {
	return &kind[batchv1.CronJob, *batchv1.CronJob]{
		version: batchv1.SchemeGroupVersion, resource: "cronjobs", singular: "cronjob",
		shortNames: []string{"cj"}, categories: []string{"all"},
		list:  func() runtime.Object { return &batchv1.CronJobList{} },
		rules: upstream.CronJobs,
		idle:  noActor("CronJob", "and no Job of it is made; a systemd timer of the machine does the same"),
		table: tables.CronJobs(),
	}
}

func replicationControllers() *kind[corev1.ReplicationController, *corev1.ReplicationController] {
	return &kind[corev1.ReplicationController, *corev1.ReplicationController]{
		version: corev1.SchemeGroupVersion, resource: "replicationcontrollers", singular: "replicationcontroller",
		shortNames: []string{"rc"}, categories: []string{"all"},
		list:  func() runtime.Object { return &corev1.ReplicationControllerList{} },
		rules: upstream.ReplicationControllers,
		idle:  noActor("ReplicationController", "and no pod of it is made; the lab runs Deployments and ReplicaSets"),
		table: tables.ReplicationControllers(),
	}
}

func podTemplates() *kind[corev1.PodTemplate, *corev1.PodTemplate] {
	return &kind[corev1.PodTemplate, *corev1.PodTemplate]{
		version: corev1.SchemeGroupVersion, resource: "podtemplates", singular: "podtemplate",
		list:           func() runtime.Object { return &corev1.PodTemplateList{} },
		rules:          upstream.PodTemplates,
		idle:           noActor("PodTemplate", "and no pod of it is made; the lab runs Deployments and ReplicaSets"),
		returnsDeleted: true,
		table:          tables.PodTemplates(),
	}
}

func disruptionBudgets() *kind[policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget] {
	type budget = *policyv1.PodDisruptionBudget
	return &kind[policyv1.PodDisruptionBudget, budget]{
		version: policyv1.SchemeGroupVersion, resource: "poddisruptionbudgets", singular: "poddisruptionbudget",
		shortNames: []string{"pdb"},
		list:       func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		rules:      upstream.PodDisruptionBudgets,
		table:      tables.PodDisruptionBudgets(),
	}
}
