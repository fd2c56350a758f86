package tables

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Deployments prints Deployments.
func Deployments() rest.TableConvertor {
	return of(func(d *appsv1.Deployment) []any {
		containers, images := containersOf(d.Spec.Template.Spec.Containers)
		return []any{
			d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, replicas(d.Spec.Replicas)),
			int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d.CreationTimestamp),
			containers, images, metav1.FormatLabelSelector(d.Spec.Selector),
		}
	}, column("Name", "string"), column("Ready", "string"), column("Up-to-date", "integer"), column("Available", "integer"), column("Age", "string"),
		wide("Containers", "string"), wide("Images", "string"), wide("Selector", "string"))
}

// ReplicaSets prints ReplicaSets.
func ReplicaSets() rest.TableConvertor {
	return of(func(r *appsv1.ReplicaSet) []any {
		containers, images := containersOf(r.Spec.Template.Spec.Containers)
		return []any{
			r.Name, int64(replicas(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r.CreationTimestamp),
			containers, images, metav1.FormatLabelSelector(r.Spec.Selector),
		}
	}, column("Name", "string"), column("Desired", "integer"), column("Current", "integer"), column("Ready", "integer"), column("Age", "string"),
		wide("Containers", "string"), wide("Images", "string"), wide("Selector", "string"))
}

func replicas(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

func containersOf(list []corev1.Container) (names, images string) {
	var n, i []string
	for _, c := range list {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
