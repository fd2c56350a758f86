package overview

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
)

// problems says what is not well, and why.
func problems(in Input) []string {
	var lines []string
	for i := range in.Nodes {
		if in.NoAPI != "" || check.NodeOf(&in.Nodes[i]).Ready {
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
	return slices.Concat(atMost(lines), OfServices(in), atMost(in.Neglected), atMost(unhealthy(in.Slices)))
}

// atMost leaves out what has no room, and says so.
func atMost(lines []string) []string {
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more like these", more))
	}
	return lines
}

// OfServices says which Services don't answer, and why.
func OfServices(in Input) []string { return atMost(serviceProblems(in)) }

func serviceProblems(in Input) []string {
	var lines []string
	counts, failing := count(in.Slices), failing(in.Slices)
	for i := range in.Services {
		s := &in.Services[i]
		name := s.Namespace + "/" + s.Name
		all, ready := counts[key(s)].sum()
		if in.NoAPI != "" {
			all, ready = in.Taking[key(s)], in.Taking[key(s)]
		}
		switch {
		case s.Spec.Type == corev1.ServiceTypeExternalName:
			continue
		case all == 0:
			lines = append(lines, fmt.Sprintf("service %s has no endpoints", name))
		case ready == 0:
			lines = append(lines, fmt.Sprintf("service %s: none of its %d endpoints is ready", name, all))
		}
		if bad := len(failing[key(s)]); all > 0 && bad >= all && ready > 0 {
			lines = append(lines, fmt.Sprintf("service %s: none of its %d endpoints passes its check; all get traffic (%s: keep)", name, all, check.AnnotationAllFailed))
		}
		if why := in.Unannounced[key(s)]; why != "" {
			lines = append(lines, fmt.Sprintf("service %s: %s", name, why))
		}
		if awaitsAddress(s) {
			lines = append(lines, fmt.Sprintf("service %s has no load balancer address", name))
		}
	}
	return lines
}

// failing are the endpoints of each Service that a node has found wanting.
func failing(list []discoveryv1.EndpointSlice) map[types.NamespacedName]map[netip.AddrPort]bool {
	found := map[types.NamespacedName]map[netip.AddrPort]bool{}
	for i := range list {
		service, _, is := check.IsReport(&list[i])
		if !is {
			continue
		}
		for _, f := range check.Findings(&list[i]) {
			if f.Health != check.Unhealthy {
				continue
			}
			if found[service] == nil {
				found[service] = map[netip.AddrPort]bool{}
			}
			found[service][f.Addr] = true
		}
	}
	return found
}

// unhealthy names endpoints that health checks have found wanting, and the reason.
func unhealthy(list []discoveryv1.EndpointSlice) []string {
	said := map[string]bool{}
	var lines []string
	for i := range list {
		service, node, is := check.IsReport(&list[i])
		if !is {
			continue
		}
		for _, f := range check.Findings(&list[i]) {
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
		key, belongs := check.ServiceOf(s)
		if reason := s.Annotations[check.AnnotationReason]; reason != "" && belongs && len(s.Endpoints) > 0 && len(s.Ports) > 0 && s.Ports[0].Port != nil {
			lines = append(lines, fmt.Sprintf("endpoint %s port %d of %s: %s, says %s, which publishes it",
				s.Endpoints[0].Addresses[0], *s.Ports[0].Port, key, reason, s.Labels[check.NodeLabel]))
		}
	}
	slices.Sort(lines)
	return lines
}

// saidAnyway are the reasons of Events whose state the screen shows as it is now.
var saidAnyway = []string{"EndpointUnhealthy", "AllEndpointsUnhealthy"}

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
		if key := o.Kind + o.Namespace + o.Name + e.Reason; e.Type == corev1.EventTypeWarning && !said[key] && !slices.Contains(saidAnyway, e.Reason) && len(lines) < maxEvents {
			said[key] = true
			lines = append(lines, line)
		}
	}
	return lines
}
