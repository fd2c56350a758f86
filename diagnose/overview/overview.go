// Package overview shows on one screen what there is, and which problems: the
// text of `fairway status`. It is pure: objects in, text out.
package overview

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/kube/ownnode"
)

// Input is what is read from the API.
type Input struct {
	Nodes    []corev1.Node
	Services []corev1.Service
	Slices   []discoveryv1.EndpointSlice
	Events   []corev1.Event // Warnings about Services and Nodes
	NoEvents string         // why there are none, if the user may not read them

	// NoAPI says why the API can't be asked; "" if it was. Nodes and Services are what agents
	// have in force then, and Taking how many endpoints of a Service take connections.
	NoAPI  string
	Taking map[types.NamespacedName]int
	// Modes are those that agents say, by node.
	Modes map[string]string
	// Drivers are those whose interfaces forward packets by XDP, or should, by node.
	Drivers map[string][]kernel.Driver
	// Ahead are rules and programs of others that take packets before those of Services, by
	// node, in words.
	Ahead map[string][]string
	// NotAsked says which agents couldn't be asked, and why, in lines for people.
	NotAsked []string
	// Unannounced are the load balancer addresses that no node announces, by Service, with
	// each node's reason.
	Unannounced map[types.NamespacedName]string
	// Neglected are the objects beside Services on which nobody acts, and why, in lines for
	// people.
	Neglected []string
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
	lines := slices.Concat(nodeLines(in), []string{""}, serviceLines(in))
	if problems := problems(in); len(problems) > 0 {
		lines = append(lines, "", "NOT WELL")
		lines = append(lines, problems...)
	} else if in.NoAPI != "" {
		lines = append(lines, "", "what is in force is well")
	} else {
		lines = append(lines, "", "all is well")
	}
	if notes := slices.Concat(othersFirst(in), withoutXDP(in), differentPorts(in.Slices)); len(notes) > 0 {
		lines = append(lines, "", "WORTH KNOWING")
		lines = append(lines, atMost(notes)...)
	}
	if warnings := warnings(in.Events); len(warnings) > 0 {
		lines = append(lines, "", "WARNINGS OF THE LAST HOUR, which may be over")
		lines = append(lines, warnings...)
	}
	if in.NoAPI != "" {
		lines = append(lines, "", "The API can't be asked: "+in.NoAPI, "this is what agents have in force")
	}
	if len(in.NotAsked) > 0 && isModeUnknown(in) {
		lines = append(lines, "", "MODE is unknown where the agent couldn't be asked")
		lines = append(lines, atMost(in.NotAsked)...)
	}
	if in.NoEvents != "" {
		lines = append(lines, "", "WARNINGS are not shown: "+in.NoEvents)
	}
	for _, line := range lines {
		fmt.Fprintln(t, line)
	}
	return t.Flush()
}

// unknownMode is shown of a node whose agent wasn't asked, or that has none.
const unknownMode = "unknown"

// isModeUnknown reports whether a node's mode isn't known.
func isModeUnknown(in Input) bool {
	return slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool { return n.Annotations[ownnode.ModeAnnotation] == "" && in.Modes[n.Name] == "" })
}

// xdpAt names the interfaces that forward packets in their driver.
func xdpAt(drivers []kernel.Driver) (names []string) {
	for _, d := range drivers {
		if d.XDP {
			names = append(names, d.Interface)
		}
	}
	return names
}

// withoutXDP says where XDP was asked for and can't be had.
func withoutXDP(in Input) (lines []string) {
	for _, node := range slices.Sorted(maps.Keys(in.Drivers)) {
		for _, d := range in.Drivers[node] {
			if !d.XDP {
				lines = append(lines, fmt.Sprintf("%s\tno XDP at %s: %s", node, d.Interface, d.Why))
			}
		}
	}
	return lines
}

// othersFirst says whose rules and programs take packets first.
func othersFirst(in Input) (lines []string) {
	for _, node := range slices.Sorted(maps.Keys(in.Ahead)) {
		for _, what := range in.Ahead[node] {
			lines = append(lines, fmt.Sprintf("%s\t%s, before they come to Services (FW136)", node, what))
		}
	}
	return lines
}

func nodeLines(in Input) []string {
	nodes := in.Nodes
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
		if in.NoAPI != "" {
			state = "answers"
		} else if !check.NodeOf(n).Ready {
			state = "NotReady"
		}
		mode := cmp.Or(n.Annotations[ownnode.ModeAnnotation], in.Modes[n.Name], unknownMode) // kube-proxy's nodes don't say
		if at := xdpAt(in.Drivers[n.Name]); len(at) > 0 {
			mode += ", XDP at " + strings.Join(at, " ")
		}
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
			strings.Join(addresses(s), ", "), strings.Join(ports, ", "), in.endpoints(counts, s)))
	}
	if more := len(in.Services) - len(list); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: fairway kubectl get services --all-namespaces", more))
	}
	return lines
}

// endpoints says how many endpoints a Service has.
func (in *Input) endpoints(counts map[types.NamespacedName]tally, s *corev1.Service) string {
	if in.NoAPI != "" {
		return fmt.Sprintf("%d in force", in.Taking[key(s)])
	}
	return counts[key(s)].String()
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
