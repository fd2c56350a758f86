package manifest

import (
	"net/netip"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// template is what pods are made of: a Pod, or what owns some.
type template struct {
	namespace string
	owner     string // "Deployment web"
	isPod     bool
	replicas  int
	template  corev1.PodTemplateSpec

	given [2][]string // its pods' addresses, by family
}

// addresses are those of the template's pods, the same ones each time it is
// asked; the sampler gives those that it hasn't.
func (t *template) addresses(last *netip.Addr, family int, m *sampler) []string {
	for len(t.given[family]) < t.replicas {
		t.given[family] = append(t.given[family], m.next(last))
	}
	return t.given[family]
}

// templateOf says which pods an object makes, if any.
func templateOf(o runtime.Object) (template, bool) {
	switch o := o.(type) {
	case *corev1.Pod:
		t := of("Pod "+o.Name, o.Namespace, nil, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
		t.isPod = true
		for _, p := range o.Status.PodIPs {
			if a, err := netip.ParseAddr(p.IP); err == nil {
				family := 0
				if a.Is6() {
					family = 1
				}
				t.given[family] = append(t.given[family], p.IP)
			}
		}
		return t, true
	case *appsv1.Deployment:
		return of("Deployment "+o.Name, o.Namespace, o.Spec.Replicas, o.Spec.Template), true
	case *appsv1.ReplicaSet:
		return of("ReplicaSet "+o.Name, o.Namespace, o.Spec.Replicas, o.Spec.Template), true
	case *appsv1.StatefulSet:
		return of("StatefulSet "+o.Name, o.Namespace, o.Spec.Replicas, o.Spec.Template), true
	case *appsv1.DaemonSet:
		return of("DaemonSet "+o.Name, o.Namespace, nil, o.Spec.Template), true
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return of("ReplicationController "+o.Name, o.Namespace, o.Spec.Replicas, *o.Spec.Template), true
		}
	}
	return template{}, false
}

func of(owner, namespace string, replicas *int32, pod corev1.PodTemplateSpec) template {
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	t := template{namespace: namespace, owner: owner, replicas: 1, template: pod}
	if replicas != nil {
		t.replicas = min(max(int(*replicas), 0), mostSamples)
	}
	return t
}

// joined writes a list as a sentence does.
func joined(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
