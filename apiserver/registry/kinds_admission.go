package registry

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func validatingPolicies() *kind[admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicy] {
	type policy = *admissionregistrationv1.ValidatingAdmissionPolicy
	return &kind[admissionregistrationv1.ValidatingAdmissionPolicy, policy]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicies", singular: "validatingadmissionpolicy",
		list:  func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyList{} },
		rules: upstream.ValidatingAdmissionPolicies,
		table: tables.ValidatingAdmissionPolicies(),
	}
}

func validatingPolicyBindings() *kind[admissionregistrationv1.ValidatingAdmissionPolicyBinding, *admissionregistrationv1.ValidatingAdmissionPolicyBinding] {
	type binding = *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	return &kind[admissionregistrationv1.ValidatingAdmissionPolicyBinding, binding]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicybindings", singular: "validatingadmissionpolicybinding",
		list:  func() runtime.Object { return &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{} },
		rules: upstream.ValidatingAdmissionPolicyBindings,
		table: tables.ValidatingAdmissionPolicyBindings(),
	}
}

func mutatingPolicies() *kind[admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicy] {
	type policy = *admissionregistrationv1.MutatingAdmissionPolicy
	return &kind[admissionregistrationv1.MutatingAdmissionPolicy, policy]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicies", singular: "mutatingadmissionpolicy",
		list:  func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyList{} },
		rules: upstream.MutatingAdmissionPolicies,
		table: tables.MutatingAdmissionPolicies(),
	}
}

func mutatingPolicyBindings() *kind[admissionregistrationv1.MutatingAdmissionPolicyBinding, *admissionregistrationv1.MutatingAdmissionPolicyBinding] {
	type binding = *admissionregistrationv1.MutatingAdmissionPolicyBinding
	return &kind[admissionregistrationv1.MutatingAdmissionPolicyBinding, binding]{
		version: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicybindings", singular: "mutatingadmissionpolicybinding",
		list:  func() runtime.Object { return &admissionregistrationv1.MutatingAdmissionPolicyBindingList{} },
		rules: upstream.MutatingAdmissionPolicyBindings,
		table: tables.MutatingAdmissionPolicyBindings(),
	}
}
