package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostLinks bounds the Services that a command is told of: the kernel refuses
// to start a command whose environment is larger than 2 MiB.
const mostLinks = 1000

// serviceLinks are the variables of Services, as Kubernetes has them ("Services,
// Discovering services, Environment variables"): of the default namespace's
// kubernetes, and of the pod's namespace unless enableServiceLinks is false.
func (w *worker) serviceLinks(ctx context.Context) ([]corev1.EnvVar, error) {
	services := map[string]*corev1.Service{}
	cached := metav1.ListOptions{ResourceVersion: "0"}
	master := cached
	master.FieldSelector = "metadata.name=kubernetes"
	list, err := w.kubelet.client.CoreV1().Services(corev1.NamespaceDefault).List(ctx, master)
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Name == "kubernetes" {
			services["kubernetes"] = &list.Items[i]
		}
	}
	if enable := w.first.Spec.EnableServiceLinks; enable == nil || *enable {
		own, err := w.kubelet.client.CoreV1().Services(w.first.Namespace).List(ctx, cached)
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		if len(own.Items) > mostLinks {
			w.kubelet.events.Eventf(w.first, corev1.EventTypeWarning, "TooManyServices",
				"The namespace has %d Services: containers have no environment variables of them (at most %d)", len(own.Items), mostLinks)
			own.Items = nil
		}
		for i := range own.Items {
			services[own.Items[i].Name] = &own.Items[i]
		}
	}
	var env []corev1.EnvVar
	for _, s := range services {
		if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && len(s.Spec.Ports) > 0 {
			env = append(env, linkVariables(s)...)
		}
	}
	slices.SortFunc(env, func(a, b corev1.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
	return env, nil
}

// linkVariables are the variables of one Service: REDIS_SERVICE_HOST and so on,
// and those of Docker's links.
func linkVariables(s *corev1.Service) []corev1.EnvVar {
	word := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	name, host := word(s.Name), s.Spec.ClusterIP
	var env []corev1.EnvVar
	set := func(key, value string) { env = append(env, corev1.EnvVar{Name: name + "_" + key, Value: value}) }
	set("SERVICE_HOST", host)
	for i, p := range s.Spec.Ports {
		number, protocol := strconv.Itoa(int(p.Port)), string(cmp.Or(p.Protocol, corev1.ProtocolTCP))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(host, number)
		if i == 0 {
			set("SERVICE_PORT", number)
			set("PORT", url)
		}
		if p.Name != "" {
			set("SERVICE_PORT_"+word(p.Name), number)
		}
		prefix := "PORT_" + number + "_" + protocol
		set(prefix, url)
		set(prefix+"_PROTO", strings.ToLower(protocol))
		set(prefix+"_PORT", number)
		set(prefix+"_ADDR", host)
	}
	return env
}
