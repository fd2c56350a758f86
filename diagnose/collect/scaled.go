package collect

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// Scaled reads the Deployments and StatefulSets of a Service's namespace that are scaled to 0,
// where its selector matches no pod. For a user who may not read them there are none.
func (s *Source) Scaled(ctx context.Context, o *explain.Objects, service *corev1.Service) []doctor.Workload {
	if service == nil || len(service.Spec.Selector) == 0 || len(s.Files) > 0 || o.NoAPI != "" || o.NoPods != "" || len(o.SelectedPods(service)) > 0 {
		return nil
	}
	client, err := s.reader()
	if err != nil {
		return nil
	}
	var list []doctor.Workload
	add := func(kind, name string, replicas *int32, labels map[string]string) {
		if replicas != nil && *replicas == 0 {
			list = append(list, doctor.Workload{Kind: kind, Name: name, Labels: labels})
		}
	}
	if deployments, err := client.AppsV1().Deployments(service.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, d := range deployments.Items {
			add("Deployment", d.Name, d.Spec.Replicas, d.Spec.Template.Labels)
		}
	}
	if sets, err := client.AppsV1().StatefulSets(service.Namespace).List(ctx, metav1.ListOptions{}); err == nil {
		for _, set := range sets.Items {
			add("StatefulSet", set.Name, set.Spec.Replicas, set.Spec.Template.Labels)
		}
	}
	return list
}
