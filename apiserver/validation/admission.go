package validation

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// ValidatingAdmissionPolicy validates a policy, its expressions included.
func ValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	errs := metadata(p, false, apivalidation.NameIsDNSSubdomain)
	spec := &p.Spec
	if len(spec.Validations)+len(spec.AuditAnnotations) == 0 {
		errs = append(errs, field.Required(specPath.Child("validations"), "validations or auditAnnotations must contain at least one item"))
	}
	errs = append(errs, policy(spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints)...)
	return append(errs, expressions(spec)...)
}

// policy validates what all policies have.
func policy(failure *admissionregistrationv1.FailurePolicyType, params *admissionregistrationv1.ParamKind, match *admissionregistrationv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if failure != nil {
		errs = append(errs, oneOf(specPath.Child("failurePolicy"), *failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if k := params; k != nil {
		if k.APIVersion == "" {
			errs = append(errs, field.Required(specPath.Child("paramKind", "apiVersion"), ""))
		}
		if k.Kind == "" {
			errs = append(errs, field.Required(specPath.Child("paramKind", "kind"), ""))
		}
	}
	if match == nil {
		errs = append(errs, field.Required(specPath.Child("matchConstraints"), ""))
	} else {
		path := specPath.Child("matchConstraints")
		if len(match.ResourceRules) == 0 {
			errs = append(errs, field.Required(path.Child("resourceRules"), ""))
		}
		errs = append(errs, matchResources(path, match)...)
	}
	return errs
}

func matchResources(path *field.Path, m *admissionregistrationv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if m.MatchPolicy != nil {
		errs = append(errs, oneOf(path.Child("matchPolicy"), *m.MatchPolicy, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)...)
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	if m.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	}
	if m.ObjectSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector, options, path.Child("objectSelector"))...)
	}
	for name, rules := range map[string][]admissionregistrationv1.NamedRuleWithOperations{"resourceRules": m.ResourceRules, "excludeResourceRules": m.ExcludeResourceRules} {
		for i, r := range rules {
			at := path.Child(name).Index(i)
			for part, n := range map[string]int{"operations": len(r.Operations), "apiGroups": len(r.APIGroups), "apiVersions": len(r.APIVersions), "resources": len(r.Resources)} {
				if n == 0 {
					errs = append(errs, field.Required(at.Child(part), ""))
				}
			}
		}
	}
	return errs
}

// expressions compiles a policy's expressions as the policy's execution will.
func expressions(spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) field.ErrorList {
	c, err := newExpressionCheck(spec.ParamKind, spec.Variables, spec.MatchConditions)
	if err != nil {
		return field.ErrorList{err}
	}
	for i, v := range spec.Validations {
		at := specPath.Child("validations").Index(i)
		c.compile(at.Child("expression"), &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}, c.options)
		if v.MessageExpression != "" {
			noAuthorizer := plugincel.OptionalVariableDeclarations{HasParams: c.options.HasParams}
			c.compile(at.Child("messageExpression"), &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, noAuthorizer)
		}
	}
	for i, a := range spec.AuditAnnotations {
		c.compile(specPath.Child("auditAnnotations").Index(i).Child("valueExpression"), &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}, c.options)
	}
	return c.errs
}

// ValidatingAdmissionPolicyBinding validates a binding.
func ValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	errs := append(metadata(b, false, apivalidation.NameIsDNSSubdomain), binding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources)...)
	actions := specPath.Child("validationActions")
	if len(b.Spec.ValidationActions) == 0 {
		errs = append(errs, field.Required(actions, "at least one validation action is required"))
	}
	has := map[admissionregistrationv1.ValidationAction]bool{}
	for i, a := range b.Spec.ValidationActions {
		errs = append(errs, oneOf(actions.Index(i), a, admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit)...)
		has[a] = true
	}
	if has[admissionregistrationv1.Deny] && has[admissionregistrationv1.Warn] {
		errs = append(errs, field.Invalid(actions, b.Spec.ValidationActions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	return errs
}

// binding validates what all bindings of policies have.
func binding(policy string, params *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(specPath.Child("policyName"), ""))
	} else {
		errs = append(errs, dnsSubdomain(specPath.Child("policyName"), policy)...)
	}
	if params != nil && (params.Name == "") == (params.Selector == nil) {
		errs = append(errs, field.Required(specPath.Child("paramRef", "name"), "one of name or selector must be specified"))
	}
	if match != nil {
		errs = append(errs, matchResources(specPath.Child("matchResources"), match)...)
	}
	return errs
}
