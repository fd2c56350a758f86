package expose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Row is a Service as `fairway ls` shows it.
type Row struct {
	Namespace, Name string
	Addresses       []string // by which clients reach it: outside if there are such, else cluster IPs
	Ports           []string
	Hosts           []string
	At              []string // addresses at which the hosts are served
	Ready, Total    int      // endpoints
	Backups         int      // endpoints that are used only while no other one is ready
	Health          string   // in place of the numbers; "" for them
}

// Own are the Services that people exposed: all but those of the cluster itself.
func Own(services []corev1.Service) []corev1.Service {
	return slices.DeleteFunc(slices.Clone(services), func(s corev1.Service) bool {
		return s.Namespace == metav1.NamespaceSystem || s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes"
	})
}

// Rows are those Services.
func Rows(services []corev1.Service, endpoints []discoveryv1.EndpointSlice, ingresses []networkingv1.Ingress) []Row {
	var rows []Row
	for _, s := range Own(services) {
		r := Row{Namespace: s.Namespace, Name: s.Name, Addresses: addressesOf(&s)}
		for _, p := range s.Spec.Ports {
			text := fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP))
			if p.NodePort != 0 && s.Spec.Type == corev1.ServiceTypeNodePort {
				text = fmt.Sprintf("%d:%s", p.Port, strings.Replace(text, fmt.Sprint(p.Port), fmt.Sprint(p.NodePort), 1))
			}
			r.Ports = append(r.Ports, text)
		}
		r.countEndpoints(endpoints, strings.Split(s.Annotations[annotationBackup], ","))
		for _, i := range ingresses {
			if i.Namespace == s.Namespace {
				r.addHosts(&i)
			}
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) })
	return rows
}

func addressesOf(s *corev1.Service) (list []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, cmp.Or(i.IP, i.Hostname))
	}
	if len(list) == 0 && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return []string{"<none yet>"}
	}
	if len(list) == 0 {
		for _, ip := range s.Spec.ClusterIPs {
			list = append(list, strings.Replace(ip, corev1.ClusterIPNone, "<headless>", 1))
		}
	}
	return list
}

// countEndpoints counts each address once, however many ports it has.
func (r *Row) countEndpoints(list []discoveryv1.EndpointSlice, backups []string) {
	ready := map[string]bool{}
	for _, s := range list {
		if s.Namespace != r.Namespace || s.Labels[discoveryv1.LabelServiceName] != r.Name {
			continue
		}
		for _, e := range s.Endpoints {
			ok := e.Conditions.Ready == nil || *e.Conditions.Ready
			for _, a := range e.Addresses[:min(1, len(e.Addresses))] {
				ready[a] = ready[a] || ok
			}
		}
	}
	r.Total = len(ready)
	for a, ok := range ready {
		if slices.Contains(backups, a) {
			r.Backups++
		}
		if ok {
			r.Ready++
		}
	}
}

// addHosts adds the hosts by which an Ingress leads to the Service.
func (r *Row) addHosts(i *networkingv1.Ingress) {
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			host := cmp.Or(rule.Host, "*") + strings.TrimSuffix(p.Path, "/")
			if p.Backend.Service == nil || p.Backend.Service.Name != r.Name || slices.Contains(r.Hosts, host) {
				continue
			}
			r.Hosts = append(r.Hosts, host)
			for _, at := range i.Status.LoadBalancer.Ingress {
				if a := cmp.Or(at.IP, at.Hostname); !slices.Contains(r.At, a) {
					r.At = append(r.At, a)
				}
			}
		}
	}
}

// Columns is the line above rows, and Cells a row below it.
var Columns = []string{"NAMESPACE", "NAME", "ADDRESS", "PORT", "HOST", "ENDPOINTS"}

// Cells are the row's, in the order of Columns.
func (r Row) Cells() []string {
	health := fmt.Sprintf("%d of %d ready", r.Ready, r.Total)
	if r.Total == 0 {
		health = "none"
	}
	if r.Backups > 0 {
		health += fmt.Sprintf(", %d of them for when no other is", r.Backups)
	}
	hosts := cmp.Or(strings.Join(r.Hosts, ","), "-")
	if len(r.At) > 0 {
		hosts += " at " + strings.Join(r.At, ",")
	}
	health = cmp.Or(r.Health, health)
	return []string{r.Namespace, r.Name, strings.Join(r.Addresses, ","), strings.Join(r.Ports, ","), hosts, health}
}
