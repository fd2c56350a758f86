package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairway-net/fairway/model"
)

func hasPolicies(e *Evidence) (bool, string) {
	if views, _ := hasViews(e); !views || e.Service == nil {
		return false, ""
	}
	return e.Objects.NoPolicies == "", e.Objects.NoPolicies
}

// checkNetworkPolicies finds FW112: endpoints whose port no NetworkPolicy lets
// anybody in at. Policies see the endpoint's port, not the Service's.
func checkNetworkPolicies(_ context.Context, e *Evidence) []Finding {
	var list []Finding
	for _, v := range e.Report.Views {
		for _, d := range v.Decisions {
			proto := d.Frontend[strings.LastIndex(d.Frontend, "/")+1:]
			for _, c := range d.Candidates {
				pod := e.podAt(c.Addr.String())
				if pod == nil || !c.Chosen {
					continue
				}
				f, found := judgePolicies(pod, int32(c.Port), strings.ToUpper(proto), e.Objects.Policies)
				if !found {
					continue
				}
				if i := slices.IndexFunc(list, f.same); i < 0 {
					list = append(list, f)
				} else if !slices.Contains(list[i].Of, f.Of[0]) {
					list[i].Of = append(list[i].Of, f.Of[0])
				}
			}
		}
	}
	return list
}

// podAt is the pod of the Service's namespace that has an address; nil if none has.
func (e *Evidence) podAt(address string) *corev1.Pod {
	for _, p := range e.Objects.Pods {
		has := p.Status.PodIP == address || slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address })
		if has && p.Namespace == e.Service.Namespace && !p.Spec.HostNetwork {
			return p
		}
	}
	return nil
}

// judgePolicies says who may reach a port of a pod: nobody, or only some clients.
// Without a policy for the pod everybody may.
func judgePolicies(pod *corev1.Pod, port int32, proto string, all []*networkingv1.NetworkPolicy) (f Finding, found bool) {
	var names []string
	somebody := false
	for _, p := range all {
		if !selectsForIngress(p, pod) {
			continue
		}
		names = append(names, p.Name)
		for _, rule := range p.Spec.Ingress {
			if !slices.ContainsFunc(rule.Ports, func(pp networkingv1.NetworkPolicyPort) bool { return coversPort(pp, pod, port, proto) }) && len(rule.Ports) > 0 {
				continue
			}
			if len(rule.From) == 0 {
				return f, false
			}
			somebody = true
		}
	}
	what, of := fmt.Sprintf("NetworkPolicy %s: ", strings.Join(names, ", ")), []string{"pod " + pod.Name}
	switch {
	case len(names) == 0:
		return f, false
	case somebody:
		return Finding{Code: NetworkPolicyRefuses, Grade: Note, What: what + fmt.Sprintf("only some clients are let in at port %d/%s", port, proto), Of: of}, true
	}
	return Finding{Code: NetworkPolicyRefuses, Grade: Likely, What: what + fmt.Sprintf("nobody is let in at port %d/%s, the endpoint's", port, proto), Of: of}, true
}

func selectsForIngress(p *networkingv1.NetworkPolicy, pod *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	ingress := len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	return err == nil && ingress && p.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
}

// coversPort reports whether a policy's port is, or has in its range, one of a pod.
func coversPort(p networkingv1.NetworkPolicyPort, pod *corev1.Pod, port int32, proto string) bool {
	if p.Protocol != nil && string(*p.Protocol) != proto || p.Protocol == nil && proto != strings.ToUpper(model.TCP.String()) {
		return false
	}
	switch {
	case p.Port == nil:
		return true
	case p.Port.StrVal != "":
		return slices.ContainsFunc(containerPorts(pod), func(c corev1.ContainerPort) bool {
			return c.Name == p.Port.StrVal && c.ContainerPort == port
		})
	case p.EndPort != nil:
		return port >= p.Port.IntVal && port <= *p.EndPort
	}
	return port == p.Port.IntVal
}
