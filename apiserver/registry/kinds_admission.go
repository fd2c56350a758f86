package registry

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/validation"
)

func validatingPolicies() *kind[admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicy] {
	type policy = *admissionregistrationv1.ValidatingAdmissionPolicy
	return &kind[admissionregistrationv1.ValidatingAdmissionPolicy, policy]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicies", singular: "validatingadmissionpolicy",
		list:          func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyList{} },
		clusterScoped: true,
		prepareCreate: func(p policy) { p.Status = admissionregistrationv1.ValidatingAdmissionPolicyStatus{} },
		prepareUpdate: func(p, old policy) { p.Status = old.Status },
		generation:    func(p, old policy) bool { return !equality.Semantic.DeepEqual(p.Spec, old.Spec) },
		validate:      validation.ValidatingAdmissionPolicy,
		status: &status[admissionregistrationv1.ValidatingAdmissionPolicy, policy]{
			keep: func(p, old policy) { p.Spec = old.Spec },
		},
		table: tables.ValidatingAdmissionPolicies(),
	}
}

func validatingPolicyBindings() *kind[admissionregistrationv1.ValidatingAdmissionPolicyBinding, *admissionregistrationv1.ValidatingAdmissionPolicyBinding] {
	type binding = *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return &kind[admissionregistrationv1.ValidatingAdmissionPolicyBinding, binding]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding",
		list:          func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{} },
		clusterScoped: true,
		generation:    func(b, old binding) bool { return !equality.Semantic.DeepEqual(b.Spec, old.Spec) },
		validate:      validation.ValidatingAdmissionPolicyBinding,
		table:         tables.ValidatingAdmissionPolicyBindings(),
	}
}

func mutatingPolicies() *kind[admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicy] {
	type policy = *admissionregistrationv1.MutatingAdmissionPolicy
	return &kind[admissionregistrationv1.MutatingAdmissionPolicy, policy]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicies", singular: "mutatingadmissionpolicy",
		list:          func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
		clusterScoped: true,
		generation:    func(p, old policy) bool { return !equality.Semantic.DeepEqual(p.Spec, old.Spec) },
		validate:      validation.MutatingAdmissionPolicy,
		table:         tables.MutatingAdmissionPolicies(),
	}
}

func mutatingPolicyBindings() *kind[admissionregistrationv1.MutatingAdmissionPolicyBinding, *admissionregistrationv1.MutatingAdmissionPolicyBinding] {
	type binding = *admissionregistrationv1.MutatingAdmissionPolicyBinding
	return &kind[admissionregistrationv1.MutatingAdmissionPolicyBinding, binding]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicybindings", singular: "mutatingadmissionpolicybinding",
		list:          func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
		clusterScoped: true,
		generation:    func(b, old binding) bool { return !equality.Semantic.DeepEqual(b.Spec, old.Spec) },
		validate:      validation.MutatingAdmissionPolicyBinding,
		table:         tables.MutatingAdmissionPolicyBindings(),
	}
}
