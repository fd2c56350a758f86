package validation

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// ValidatingAdmissionPolicy validates a policy, its expressions included.
func ValidatingAdmissionPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	errs := metadata(p, false, apivalidation.NameIsDNSSubdomain)
	spec := &p.Spec
	if len(spec.Validations)+len(spec.AuditAnnotations) == 0 {
		errs = append(errs, field.Required(specPath.Child("validations"), "validations or auditAnnotations must contain at least one item"))
	}
	if spec.FailurePolicy != nil {
		errs = append(errs, oneOf(specPath.Child("failurePolicy"), *spec.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if k := spec.ParamKind; k != nil {
		if k.APIVersion == "" {
			errs = append(errs, field.Required(specPath.Child("paramKind", "apiVersion"), ""))
		}
		if k.Kind == "" {
			errs = append(errs, field.Required(specPath.Child("paramKind", "kind"), ""))
		}
	}
	if spec.MatchConstraints == nil {
		errs = append(errs, field.Required(specPath.Child("matchConstraints"), ""))
	} else {
		path := specPath.Child("matchConstraints")
		if len(spec.MatchConstraints.ResourceRules) == 0 {
			errs = append(errs, field.Required(path.Child("resourceRules"), ""))
		}
		errs = append(errs, matchResources(path, spec.MatchConstraints)...)
	}
	return append(errs, expressions(spec)...)
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
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return field.ErrorList{field.InternalError(specPath, fmt.Errorf("prepare expressions: %w", err))}
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	var errs field.ErrorList
	check := func(path *field.Path, expression string, result plugincel.CompilationResult) {
		if result.Error != nil {
			errs = append(errs, field.Invalid(path, expression, result.Error.Detail))
		}
	}
	for i := range spec.Variables {
		v := &validating.Variable{Name: spec.Variables[i].Name, Expression: spec.Variables[i].Expression}
		check(specPath.Child("variables").Index(i).Child("expression"), v.Expression, compiler.CompileAndStoreVariable(v, options, environment.NewExpressions))
	}
	for i := range spec.MatchConditions {
		c := (*matchconditions.MatchCondition)(&spec.MatchConditions[i])
		check(specPath.Child("matchConditions").Index(i).Child("expression"), c.Expression, compiler.CompileCELExpression(c, options, environment.NewExpressions))
	}
	for i, v := range spec.Validations {
		c := &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		check(specPath.Child("validations").Index(i).Child("expression"), v.Expression, compiler.CompileCELExpression(c, options, environment.NewExpressions))
		if v.MessageExpression != "" {
			m := &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
			noAuthorizer := plugincel.OptionalVariableDeclarations{HasParams: options.HasParams}
			check(specPath.Child("validations").Index(i).Child("messageExpression"), v.MessageExpression, compiler.CompileCELExpression(m, noAuthorizer, environment.NewExpressions))
		}
	}
	for i, a := range spec.AuditAnnotations {
		c := &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
		check(specPath.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression, compiler.CompileCELExpression(c, options, environment.NewExpressions))
	}
	return errs
}

// ValidatingAdmissionPolicyBinding validates a binding.
func ValidatingAdmissionPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	errs := metadata(b, false, apivalidation.NameIsDNSSubdomain)
	if b.Spec.PolicyName == "" {
		errs = append(errs, field.Required(specPath.Child("policyName"), ""))
	} else {
		errs = append(errs, dnsSubdomain(specPath.Child("policyName"), b.Spec.PolicyName)...)
	}
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
	if r := b.Spec.ParamRef; r != nil && (r.Name == "") == (r.Selector == nil) {
		errs = append(errs, field.Required(specPath.Child("paramRef", "name"), "one of name or selector must be specified"))
	}
	if b.Spec.MatchResources != nil {
		errs = append(errs, matchResources(specPath.Child("matchResources"), b.Spec.MatchResources)...)
	}
	return errs
}
