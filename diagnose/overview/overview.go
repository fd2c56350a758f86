// Package overview says on one screen what there is and what is not well: the
// text of `fairway status`. It is pure: objects in, text out.
package overview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/health"
)

// Input is what is read from the API.
type Input struct {
	Nodes    []corev1.Node
	Services []corev1.Service
	Slices   []discoveryv1.EndpointSlice
	Events   []corev1.Event // Warnings about Services and Nodes
}

// maxEvents is how many recent warnings have room.
const maxEvents = 8

// Write writes the screen.
func Write(out io.Writer, in Input) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	lines := slices.Concat(nodeLines(in.Nodes), []string{""}, serviceLines(in))
	if problems := problems(in); len(problems) > 0 {
		lines = append(lines, "", "NOT WELL")
		lines = append(lines, problems...)
	} else {
		lines = append(lines, "", "all is well")
	}
	for _, line := range lines {
		fmt.Fprintln(t, line)
	}
	return t.Flush()
}

func nodeLines(nodes []corev1.Node) []string {
	lines := []string{"NODE\tSTATE\tADDRESSES"}
	for i := range nodes {
		n := &nodes[i]
		var addresses []string
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				addresses = append(addresses, a.Address)
			}
		}
		state := "Ready"
		if !health.NodeOf(n).Ready {
			state = "NotReady"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s", n.Name, state, strings.Join(addresses, ", ")))
	}
	if len(nodes) == 0 {
		lines = append(lines, "none")
	}
	return lines
}

func serviceLines(in Input) []string {
	lines := []string{"SERVICE\tTYPE\tADDRESSES\tPORTS\tENDPOINTS READY"}
	counts := count(in.Slices)
	for i := range in.Services {
		s := &in.Services[i]
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		c := counts[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
		lines = append(lines, fmt.Sprintf("%s/%s\t%s\t%s\t%s\t%d of %d", s.Namespace, s.Name, s.Spec.Type,
			strings.Join(addresses(s), ", "), strings.Join(ports, ", "), c.ready, c.all))
	}
	return lines
}

// addresses are all at which a Service answers.
func addresses(s *corev1.Service) []string {
	list := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, cmp.Or(i.IP, i.Hostname))
	}
	return list
}

// tally is how many endpoints a Service has, each address and port once.
type tally struct{ all, ready int }

func count(list []discoveryv1.EndpointSlice) map[types.NamespacedName]tally {
	counts := map[types.NamespacedName]tally{}
	for i := range list {
		key, belongs := health.ServiceOf(&list[i])
		if !belongs {
			continue
		}
		c := counts[key]
		for _, e := range list[i].Endpoints {
			c.all++
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				c.ready++
			}
		}
		counts[key] = c
	}
	return counts
}

// problems says what is not well, and why.
func problems(in Input) []string {
	var lines []string
	for i := range in.Nodes {
		if health.NodeOf(&in.Nodes[i]).Ready {
			continue
		}
		why := "its Node says so"
		for _, c := range in.Nodes[i].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Message != "" {
				why = c.Message
			}
		}
		lines = append(lines, fmt.Sprintf("node %s is not ready: %s", in.Nodes[i].Name, why))
	}
	counts := count(in.Slices)
	for i := range in.Services {
		s := &in.Services[i]
		name := s.Namespace + "/" + s.Name
		c := counts[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]
		switch {
		case s.Spec.Type == corev1.ServiceTypeExternalName:
			continue
		case c.all == 0:
			lines = append(lines, fmt.Sprintf("service %s has no endpoints", name))
		case c.ready == 0:
			lines = append(lines, fmt.Sprintf("service %s: none of its %d endpoints is ready", name, c.all))
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			lines = append(lines, fmt.Sprintf("service %s has no load balancer address", name))
		}
	}
	return append(append(lines, unhealthy(in.Slices)...), warnings(in.Events)...)
}

// unhealthy names endpoints that health checks have found wanting, and the reason.
func unhealthy(list []discoveryv1.EndpointSlice) []string {
	said := map[string]bool{}
	var lines []string
	for i := range list {
		service, node, is := health.IsReport(&list[i])
		if !is {
			continue
		}
		for _, f := range health.Findings(&list[i]) {
			if f.Reason == "" {
				continue
			}
			line := fmt.Sprintf("endpoint %s of %s: %s, seen from %s", f.Addr, service, f.Reason, node)
			if !said[line] {
				said[line] = true
				lines = append(lines, line)
			}
		}
	}
	for i := range list {
		s := &list[i]
		key, belongs := health.ServiceOf(s)
		if reason := s.Annotations[health.AnnotationReason]; reason != "" && belongs && len(s.Endpoints) > 0 && len(s.Ports) > 0 && s.Ports[0].Port != nil {
			lines = append(lines, fmt.Sprintf("endpoint %s port %d of %s: %s, says %s, which publishes it",
				s.Endpoints[0].Addresses[0], *s.Ports[0].Port, key, reason, s.Labels[health.NodeLabel]))
		}
	}
	slices.Sort(lines)
	return lines
}

// warnings are the latest Warning Events, each text once.
func warnings(events []corev1.Event) []string {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	said := map[string]bool{}
	var lines []string
	for _, e := range events {
		o := e.InvolvedObject
		line := fmt.Sprintf("%s %s, %s: %s: %s", strings.ToLower(o.Kind), strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"),
			e.LastTimestamp.Format("15:04:05"), e.Reason, e.Message)
		if key := o.Kind + o.Namespace + o.Name + e.Reason; e.Type == corev1.EventTypeWarning && !said[key] && len(lines) < maxEvents {
			said[key] = true
			lines = append(lines, line)
		}
	}
	return lines
}
