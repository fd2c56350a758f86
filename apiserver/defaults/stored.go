package defaults

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StatefulSet fills in a StatefulSet's defaults.
func StatefulSet(s *appsv1.StatefulSet) {
	setPointer(&s.Spec.Replicas, 1)
	setPointer(&s.Spec.RevisionHistoryLimit, 10)
	setDefault(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	setDefault(&s.Spec.UpdateStrategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	PodSpec(&s.Spec.Template.Spec)
}

// DaemonSet fills in a DaemonSet's defaults.
func DaemonSet(d *appsv1.DaemonSet) {
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
	setDefault(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	PodSpec(&d.Spec.Template.Spec)
}

// NetworkPolicy fills in a NetworkPolicy's defaults.
func NetworkPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for i := range p.Spec.Ingress {
		policyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		policyPorts(p.Spec.Egress[i].Ports)
	}
}

func policyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		setPointer(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// IngressClass fills in an IngressClass' defaults.
func IngressClass(c *networkingv1.IngressClass) {
	if p := c.Spec.Parameters; p != nil {
		setPointer(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// PriorityClass fills in a PriorityClass's defaults.
func PriorityClass(p *schedulingv1.PriorityClass) {
	setPointer(&p.PreemptionPolicy, corev1.PreemptLowerPriority)
}

// ValidatingAdmissionPolicy fills in a policy's defaults.
func ValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	setPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	matchResources(p.Spec.MatchConstraints)
}

// ValidatingAdmissionPolicyBinding fills in a binding's defaults.
func ValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	matchResources(b.Spec.MatchResources)
}

// MutatingAdmissionPolicy fills in a policy's defaults.
func MutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	setPointer(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	matchResources(p.Spec.MatchConstraints)
}

// MutatingAdmissionPolicyBinding fills in a binding's defaults.
func MutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	matchResources(b.Spec.MatchResources)
}

func matchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	setPointer(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	setPointer(&m.NamespaceSelector, metav1.LabelSelector{})
	setPointer(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			setPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}
