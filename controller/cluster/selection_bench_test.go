package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkPodChange flips one Pod among 100,000 in the namespace of 10,000
// Services, and asks for the Pods of the Service concerned.
func BenchmarkPodChange(b *testing.B) {
	index := newSelection()
	const services, perService = 10_000, 10
	pods := make([]*corev1.Pod, services*perService)
	for i := range services {
		app := fmt.Sprint("app-", i)
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
		service.Spec.Selector = map[string]string{"app": app, "part-of": "everything"}
		index.changeService(service, false)
		for j := range perService {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint(app, "-", j),
				Labels: map[string]string{"app": app, "part-of": "everything", "hash": "5d4f"},
			}}
			pods[i*perService+j] = pod
			index.changePod(nil, pod)
		}
	}
	ips := [2]string{"10.0.0.1", "10.0.0.2"}
	for i := 0; b.Loop(); i++ {
		n := i * 7919 % len(pods)
		changed := *pods[n]
		changed.Status.PodIP = ips[i%2]
		for _, service := range index.changePod(pods[n], &changed) {
			if service.Name != changed.Labels["app"] {
				b.Fatalf("change of %s concerns %s", changed.Name, service)
			}
			if got := index.podsFor("default", map[string]string{"app": service.Name, "part-of": "everything"}); len(got) != perService {
				b.Fatalf("%s has %d Pods", service, len(got))
			}
		}
		pods[n] = &changed
	}
}
