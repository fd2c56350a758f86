package tables

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// StatefulSets prints StatefulSets.
func StatefulSets() rest.TableConvertor {
	return of(func(s *appsv1.StatefulSet) []any {
		containers, images := containersOf(s.Spec.Template.Spec.Containers)
		return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, replicas(s.Spec.Replicas)), age(s.CreationTimestamp), containers, images}
	}, column("Name", "string"), column("Ready", "string"), column("Age", "string"), wide("Containers", "string"), wide("Images", "string"))
}

// DaemonSets prints DaemonSets.
func DaemonSets() rest.TableConvertor {
	return of(func(d *appsv1.DaemonSet) []any {
		containers, images := containersOf(d.Spec.Template.Spec.Containers)
		return []any{
			d.Name, int64(d.Status.DesiredNumberScheduled), int64(d.Status.CurrentNumberScheduled), int64(d.Status.NumberReady),
			int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable), metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: d.Spec.Template.Spec.NodeSelector}),
			age(d.CreationTimestamp), containers, images, metav1.FormatLabelSelector(d.Spec.Selector),
		}
	}, column("Name", "string"), column("Desired", "integer"), column("Current", "integer"), column("Ready", "integer"), column("Up-to-date", "integer"),
		column("Available", "integer"), column("Node Selector", "string"), column("Age", "string"),
		wide("Containers", "string"), wide("Images", "string"), wide("Selector", "string"))
}

// NetworkPolicies prints NetworkPolicies.
func NetworkPolicies() rest.TableConvertor {
	return of(func(p *networkingv1.NetworkPolicy) []any {
		return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), age(p.CreationTimestamp)}
	}, column("Name", "string"), column("Pod-Selector", "string"), column("Age", "string"))
}

// LimitRanges prints LimitRanges.
func LimitRanges() rest.TableConvertor {
	return of(func(l *corev1.LimitRange) []any {
		return []any{l.Name, l.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z")}
	},
		column("Name", "string"), column("Created At", "string"))
}

// ResourceQuotas prints ResourceQuotas.
func ResourceQuotas() rest.TableConvertor {
	return of(func(q *corev1.ResourceQuota) []any {
		var hard []string
		for name, most := range q.Spec.Hard {
			hard = append(hard, fmt.Sprintf("%s: %s", name, most.String()))
		}
		slices.Sort(hard)
		return []any{q.Name, strings.Join(hard, ", "), age(q.CreationTimestamp)}
	}, column("Name", "string"), column("Hard", "string"), column("Age", "string"))
}

// PriorityClasses prints PriorityClasses.
func PriorityClasses() rest.TableConvertor {
	return of(func(p *schedulingv1.PriorityClass) []any {
		preemption := corev1.PreemptLowerPriority
		if p.PreemptionPolicy != nil {
			preemption = *p.PreemptionPolicy
		}
		return []any{p.Name, int64(p.Value), p.GlobalDefault, age(p.CreationTimestamp), string(preemption)}
	}, column("Name", "string"), column("Value", "integer"), column("Global-Default", "boolean"), column("Age", "string"), column("PreemptionPolicy", "string"))
}

// ValidatingAdmissionPolicies prints ValidatingAdmissionPolicies.
func ValidatingAdmissionPolicies() rest.TableConvertor {
	return of(func(p *admissionregistrationv1.ValidatingAdmissionPolicy) []any {
		params := "<unset>"
		if k := p.Spec.ParamKind; k != nil {
			params = k.APIVersion + "/" + k.Kind
		}
		return []any{p.Name, int64(len(p.Spec.Validations)), params, age(p.CreationTimestamp)}
	}, column("Name", "string"), column("Validations", "integer"), column("ParamKind", "string"), column("Age", "string"))
}

// ValidatingAdmissionPolicyBindings prints ValidatingAdmissionPolicyBindings.
func ValidatingAdmissionPolicyBindings() rest.TableConvertor {
	return of(func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) []any {
		params := "<unset>"
		if r := b.Spec.ParamRef; r != nil {
			params = strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
		}
		return []any{b.Name, b.Spec.PolicyName, params, age(b.CreationTimestamp)}
	}, column("Name", "string"), column("PolicyName", "string"), column("ParamRef", "string"), column("Age", "string"))
}

// MutatingAdmissionPolicies prints MutatingAdmissionPolicies.
func MutatingAdmissionPolicies() rest.TableConvertor {
	return of(func(p *admissionregistrationv1.MutatingAdmissionPolicy) []any {
		params := "<unset>"
		if k := p.Spec.ParamKind; k != nil {
			params = k.APIVersion + "/" + k.Kind
		}
		return []any{p.Name, int64(len(p.Spec.Mutations)), params, age(p.CreationTimestamp)}
	}, column("Name", "string"), column("Mutations", "integer"), column("ParamKind", "string"), column("Age", "string"))
}

// MutatingAdmissionPolicyBindings prints MutatingAdmissionPolicyBindings.
func MutatingAdmissionPolicyBindings() rest.TableConvertor {
	return of(func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) []any {
		params := "<unset>"
		if r := b.Spec.ParamRef; r != nil {
			params = strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
		}
		return []any{b.Name, b.Spec.PolicyName, params, age(b.CreationTimestamp)}
	}, column("Name", "string"), column("PolicyName", "string"), column("ParamRef", "string"), column("Age", "string"))
}
