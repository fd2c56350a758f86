package tables

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Jobs prints Jobs.
func Jobs() rest.TableConvertor {
	return of(func(j *batchv1.Job) []any {
		return []any{j.Name, fmt.Sprintf("%d/%d", j.Status.Succeeded, max(1, replicas(j.Spec.Completions))), age(j.CreationTimestamp)}
	}, column("Name", "string"), column("Completions", "string"), column("Age", "string"))
}

// CronJobs prints CronJobs.
func CronJobs() rest.TableConvertor {
	return of(func(j *batchv1.CronJob) []any {
		return []any{j.Name, j.Spec.Schedule, j.Spec.Suspend != nil && *j.Spec.Suspend, age(j.CreationTimestamp)}
	}, column("Name", "string"), column("Schedule", "string"), column("Suspend", "boolean"), column("Age", "string"))
}

// ReplicationControllers prints ReplicationControllers.
func ReplicationControllers() rest.TableConvertor {
	return of(func(r *corev1.ReplicationController) []any {
		return []any{r.Name, int64(replicas(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r.CreationTimestamp)}
	}, column("Name", "string"), column("Desired", "integer"), column("Current", "integer"), column("Ready", "integer"), column("Age", "string"))
}

// PodTemplates prints PodTemplates.
func PodTemplates() rest.TableConvertor {
	return of(func(p *corev1.PodTemplate) []any {
		containers, images := containersOf(p.Template.Spec.Containers)
		return []any{p.Name, containers, images, metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: p.Template.Labels}), age(p.CreationTimestamp)}
	}, column("Name", "string"), column("Containers", "string"), column("Images", "string"), column("Pod Labels", "string"), column("Age", "string"))
}

// PodDisruptionBudgets prints PodDisruptionBudgets.
func PodDisruptionBudgets() rest.TableConvertor {
	limit := func(v *intstr.IntOrString) string {
		if v == nil {
			return "N/A"
		}
		return v.String()
	}
	return of(func(b *policyv1.PodDisruptionBudget) []any {
		return []any{b.Name, limit(b.Spec.MinAvailable), limit(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed), age(b.CreationTimestamp)}
	}, column("Name", "string"), column("Min Available", "string"), column("Max Unavailable", "string"), column("Allowed Disruptions", "integer"), column("Age", "string"))
}
