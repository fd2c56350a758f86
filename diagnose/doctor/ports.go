package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/nearest"
)

// checkTargetPorts finds FW104 and FW106: names and protocols of container ports.
func checkTargetPorts(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	pods := e.Objects.SelectedPods(e.Service)
	for _, p := range e.Service.Spec.Ports {
		if len(pods) == 0 {
			break
		}
		proto := orElse(string(p.Protocol), string(corev1.ProtocolTCP))
		if p.TargetPort.Type == intstr.String {
			list = append(list, namedPort(p, proto, pods)...)
			continue
		}
		number := p.TargetPort.IntVal
		if number == 0 {
			number = p.Port
		}
		if other := otherProtocol(pods, number, proto); other != "" {
			list = append(list, Finding{Code: OtherProtocol, Grade: Likely, What: fmt.Sprintf("Service port %d is %s, and the containers declare port %d as %s", p.Port, proto, number, other)})
		}
	}
	return list
}

// namedPort looks for a target port's name in the pods' containers.
func namedPort(p corev1.ServicePort, proto string, pods []*corev1.Pod) []Finding {
	var names []string
	for _, pod := range pods {
		for _, c := range containerPorts(pod) {
			if c.Name == p.TargetPort.StrVal && orElse(string(c.Protocol), "TCP") == proto {
				return nil
			}
			if c.Name != "" && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
			}
		}
	}
	what := fmt.Sprintf("targetPort %q (%s) of Service port %d is no container port's name", p.TargetPort.StrVal, proto, p.Port)
	switch similar := nearest.Name(p.TargetPort.StrVal, names); {
	case slices.Contains(names, p.TargetPort.StrVal):
		return []Finding{{Code: OtherProtocol, Grade: Proved, What: fmt.Sprintf("the container port named %q has another protocol than %s", p.TargetPort.StrVal, proto)}}
	case similar != "":
		what += fmt.Sprintf("; did you mean %q?", similar)
	case len(names) > 0:
		what += "; there are " + strings.Join(names, ", ")
	}
	return []Finding{{Code: UnknownTargetPort, Grade: Proved, What: what}}
}

// otherProtocol is the protocol with which all pods that declare a port declare
// it, if it isn't the given one.
func otherProtocol(pods []*corev1.Pod, number int32, proto string) string {
	other := ""
	for _, pod := range pods {
		for _, c := range containerPorts(pod) {
			if c.ContainerPort != number {
				continue
			}
			if has := orElse(string(c.Protocol), "TCP"); has == proto {
				return ""
			} else {
				other = has
			}
		}
	}
	return other
}

func containerPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var list []corev1.ContainerPort
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		list = append(list, c.Ports...)
	}
	return list
}

// checkSlices finds FW107: endpoints that slices list and no port can use.
func checkSlices(_ context.Context, e *Evidence) []Finding {
	list := e.staleSlices()
	if e.Report == nil {
		return list
	}
	seen := map[string]bool{}
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			for _, c := range d.Candidates {
				what := ""
				switch c.Why {
				case compile.OtherPort.String():
					what = fmt.Sprintf("EndpointSlice %s has no port of the name that Service port %s has", c.Slice, d.Service)
				case compile.OtherProtocol.String():
					what = fmt.Sprintf("EndpointSlice %s has the port of %s with another protocol", c.Slice, d.Service)
				}
				if what != "" && !seen[what] {
					seen[what] = true
					grade := Proved
					if served(d.Action) {
						grade = Note // others serve
					}
					list = append(list, Finding{Code: UnfitSlice, Grade: grade, What: what})
				}
			}
		}
	}
	return list
}

func served(action string) bool { return action == "forwarded" }

// checkPort finds FW108: an address of a Service, with a port that it lacks.
func checkPort(_ context.Context, e *Evidence) []Finding {
	if e.Service == nil || e.Question.Target.Port == "" {
		return nil
	}
	if !e.Question.Target.Addr.IsValid() && e.Service.Spec.Type != corev1.ServiceTypeExternalName && !slices.ContainsFunc(e.Service.Spec.Ports, e.isAsked) {
		return []Finding{e.noPort()}
	}
	for _, v := range e.Report.Views {
		if slices.ContainsFunc(v.Decisions, func(d explain.Decision) bool { return d.Service == "" }) {
			return []Finding{e.noPort()}
		}
	}
	return nil
}

// isAsked reports whether a port of the Service is one that is asked about.
func (e *Evidence) isAsked(p corev1.ServicePort) bool {
	t := e.Question.Target
	return (t.Port == p.Name || t.Port == strconv.Itoa(int(p.Port))) &&
		(t.Proto == 0 || strings.EqualFold(t.Proto.String(), orElse(string(p.Protocol), "TCP")))
}

func (e *Evidence) noPort() Finding {
	var ports []string
	for _, p := range e.Service.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, strings.ToLower(orElse(string(p.Protocol), "TCP")))
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
		ports = append(ports, text)
	}
	asked := e.Question.Target.Port
	if p := e.Question.Target.Proto; p != 0 {
		asked += "/" + p.String()
	}
	return Finding{Code: NoSuchPort, Grade: Proved, What: fmt.Sprintf("%s/%s has no port %s; it has %s",
		e.Service.Namespace, e.Service.Name, asked, orElse(strings.Join(ports, ", "), "none"))}
}

// sliceController manages the slices of Services with a selector.
const sliceController = "endpointslice-controller.k8s.io"

// staleSlices finds slices of a selector that the Service has no longer: nobody keeps them, and
// their endpoints go on taking traffic.
func (e *Evidence) staleSlices() []Finding {
	if len(e.Service.Spec.Selector) > 0 {
		return nil
	}
	var list []Finding
	for _, slice := range e.Objects.SlicesOf(e.Service) {
		if slice.Labels[discoveryv1.LabelManagedBy] == sliceController && len(slice.Endpoints) > 0 {
			list = append(list, Finding{Code: UnfitSlice, Grade: Likely, What: fmt.Sprintf("EndpointSlice %s is of a selector that the Service has no longer: nobody keeps it, and its endpoints (%d) go on taking traffic", slice.Name, len(slice.Endpoints)),
				Fix: fmt.Sprintf("kubectl delete endpointslice %s -n %s", slice.Name, slice.Namespace)})
		}
	}
	return list
}
