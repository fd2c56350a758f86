// Package overview says on one screen what there is and what is not well: the
// text of `fairway status`. It is pure: objects in, text out.
package overview

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/endpoint/health"
)

// Input is what is read from the API.
type Input struct {
	Nodes    []corev1.Node
	Services []corev1.Service
	Slices   []discoveryv1.EndpointSlice
	Events   []corev1.Event // Warnings about Services and Nodes
}

// What has room on one screen.
const (
	maxEvents   = 8  // recent warnings
	maxLines    = 20 // of each other kind of problem
	maxServices = 40 // those that are not well first
)

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
	if warnings := warnings(in.Events); len(warnings) > 0 {
		lines = append(lines, "", "WARNINGS OF THE LAST HOUR, which may be over")
		lines = append(lines, warnings...)
	}
	for _, line := range lines {
		fmt.Fprintln(t, line)
	}
	return t.Flush()
}

func nodeLines(nodes []corev1.Node) []string {
	lines := []string{"NODE\tSTATE\tMODE\tADDRESSES"}
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
		mode := cmp.Or(n.Annotations[health.ModeAnnotation], "unknown") // kube-proxy's nodes don't say
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", n.Name, state, mode, strings.Join(addresses, ", ")))
	}
	if len(nodes) == 0 {
		lines = append(lines, "none")
	}
	return lines
}

func serviceLines(in Input) []string {
	lines := []string{"SERVICE\tTYPE\tADDRESSES\tPORTS\tENDPOINTS READY"}
	counts := count(in.Slices)
	list := in.Services
	if len(list) > maxServices {
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b corev1.Service) int { return rank(&a, counts) - rank(&b, counts) })
		list = list[:maxServices]
	}
	for i := range list {
		s := &list[i]
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		lines = append(lines, fmt.Sprintf("%s/%s\t%s\t%s\t%s\t%s", s.Namespace, s.Name, s.Spec.Type,
			strings.Join(addresses(s), ", "), strings.Join(ports, ", "), counts[key(s)]))
	}
	if more := len(in.Services) - len(list); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: fairway kubectl get services --all-namespaces", more))
	}
	return lines
}

func key(s *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// rank orders Services: those with the worst endpoints first.
func rank(s *corev1.Service, counts map[types.NamespacedName]tally) int {
	all, ready := counts[key(s)].sum()
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return 3
	case ready == 0 || awaitsAddress(s):
		return 0
	case ready < all:
		return 1
	}
	return 2
}

// awaitsAddress reports whether a Service has no load balancer address, and should.
func awaitsAddress(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
}

// addresses are all at which a Service answers.
func addresses(s *corev1.Service) []string {
	list := slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs)
	for _, i := range s.Status.LoadBalancer.Ingress {
		list = append(list, cmp.Or(i.IP, i.Hostname))
	}
	return list
}

// tally is how many endpoints a Service has in each family, each address and
// port once.
type tally struct{ four, six ratio }

type ratio struct{ all, ready int }

func (t tally) sum() (all, ready int) { return t.four.all + t.six.all, t.four.ready + t.six.ready }

// String names the families where there are endpoints of both.
func (t tally) String() string {
	all, ready := t.sum()
	if t.four.all > 0 && t.six.all > 0 {
		return fmt.Sprintf("%d of %d IPv4, %d of %d IPv6", t.four.ready, t.four.all, t.six.ready, t.six.all)
	}
	return fmt.Sprintf("%d of %d", ready, all)
}

// count counts the endpoints of all Services. One that is in several slices is
// ready if it is in any of them.
func count(list []discoveryv1.EndpointSlice) map[types.NamespacedName]tally {
	found := map[types.NamespacedName]map[string]bool{}
	for i := range list {
		service, belongs := health.ServiceOf(&list[i])
		if !belongs {
			continue
		}
		if found[service] == nil {
			found[service] = map[string]bool{}
		}
		for _, e := range list[i].Endpoints {
			if len(e.Addresses) > 0 {
				name := endpointName(e.Addresses[0], list[i].Ports)
				found[service][name] = found[service][name] || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
	}
	counts := map[types.NamespacedName]tally{}
	for service, endpoints := range found {
		var t tally
		for name, ready := range endpoints {
			of := &t.four
			if strings.HasPrefix(name, "[") {
				of = &t.six
			}
			of.all++
			if ready {
				of.ready++
			}
		}
		counts[service] = t
	}
	return counts
}

// endpointName is the address with the first port.
func endpointName(address string, ports []discoveryv1.EndpointPort) string {
	port := ""
	if len(ports) > 0 && ports[0].Port != nil {
		port = strconv.Itoa(int(*ports[0].Port))
	}
	return net.JoinHostPort(address, port)
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
	return slices.Concat(atMost(lines), atMost(serviceProblems(in)), atMost(unhealthy(in.Slices)))
}

// atMost leaves out what has no room, and says so.
func atMost(lines []string) []string {
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines:maxLines], fmt.Sprintf("and %d more like these", more))
	}
	return lines
}

// serviceProblems says which Services don't answer.
func serviceProblems(in Input) []string {
	var lines []string
	counts, failing := count(in.Slices), failing(in.Slices)
	for i := range in.Services {
		s := &in.Services[i]
		name := s.Namespace + "/" + s.Name
		all, ready := counts[key(s)].sum()
		switch {
		case s.Spec.Type == corev1.ServiceTypeExternalName:
			continue
		case all == 0:
			lines = append(lines, fmt.Sprintf("service %s has no endpoints", name))
		case ready == 0:
			lines = append(lines, fmt.Sprintf("service %s: none of its %d endpoints is ready", name, all))
		}
		if bad := len(failing[key(s)]); all > 0 && bad >= all && ready > 0 {
			lines = append(lines, fmt.Sprintf("service %s: none of its %d endpoints passes its check; all get traffic (%s: keep)", name, all, health.AnnotationAllFailed))
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
		service, _, is := health.IsReport(&list[i])
		if !is {
			continue
		}
		for _, f := range health.Findings(&list[i]) {
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
