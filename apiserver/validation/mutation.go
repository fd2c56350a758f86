package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
)

// MutatingAdmissionPolicy validates a policy, its expressions included.
func MutatingAdmissionPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	errs := metadata(p, false, apivalidation.NameIsDNSSubdomain)
	spec := &p.Spec
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(specPath.Child("mutations"), "must contain at least one item"))
	}
	at := specPath.Child("reinvocationPolicy")
	if spec.ReinvocationPolicy == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, oneOf(at, spec.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)...)
	}
	errs = append(errs, policy(spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints)...)
	return append(errs, mutations(spec)...)
}

// mutations compiles a policy's expressions as the policy's execution will.
func mutations(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) field.ErrorList {
	c, err := newExpressionCheck(spec.ParamKind, spec.Variables, spec.MatchConditions)
	if err != nil {
		return field.ErrorList{err}
	}
	options := c.options
	options.HasPatchTypes = true
	for i, m := range spec.Mutations {
		at := specPath.Child("mutations").Index(i)
		c.errs = append(c.errs, oneOf(at.Child("patchType"), m.PatchType, admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)...)
		c.mutation(at.Child("applyConfiguration"), m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration, m.ApplyConfiguration != nil, func() plugincel.ExpressionAccessor {
			return &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
		}, options)
		c.mutation(at.Child("jsonPatch"), m.PatchType == admissionregistrationv1.PatchTypeJSONPatch, m.JSONPatch != nil, func() plugincel.ExpressionAccessor {
			return &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
		}, options)
	}
	return c.errs
}

// mutation validates a form of a mutation: it is there if the type asks for it,
// and only then.
func (c *expressionCheck) mutation(at *field.Path, asked, there bool, expression func() plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations) {
	switch {
	case asked && !there:
		c.errs = append(c.errs, field.Required(at, "patchType asks for it"))
	case !asked && there:
		c.errs = append(c.errs, field.Forbidden(at, "patchType asks for another form"))
	case there:
		c.compile(at.Child("expression"), expression(), options)
	}
}

// MutatingAdmissionPolicyBinding validates a binding.
func MutatingAdmissionPolicyBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return append(metadata(b, false, apivalidation.NameIsDNSSubdomain), binding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)...)
}
