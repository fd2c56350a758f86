package validation

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
)

var webhooksPath = field.NewPath("webhooks")

// reviewVersions are the versions of AdmissionReview that webhooks are sent.
var reviewVersions = []string{"v1", "v1beta1"}

// ValidatingWebhookConfiguration validates a configuration of validating webhooks.
func ValidatingWebhookConfiguration(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	errs := metadata(c, false, apivalidation.NameIsDNSSubdomain)
	seen := map[string]bool{}
	for i, w := range c.Webhooks {
		errs = append(errs, webhook{
			name: w.Name, client: w.ClientConfig, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy, sideEffects: w.SideEffects,
			timeout: w.TimeoutSeconds, versions: w.AdmissionReviewVersions, conditions: w.MatchConditions,
			selectors: map[string]*metav1.LabelSelector{"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector},
		}.validate(webhooksPath.Index(i), seen)...)
	}
	return errs
}

// MutatingWebhookConfiguration validates a configuration of mutating webhooks.
func MutatingWebhookConfiguration(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	errs := metadata(c, false, apivalidation.NameIsDNSSubdomain)
	seen := map[string]bool{}
	for i, w := range c.Webhooks {
		path := webhooksPath.Index(i)
		errs = append(errs, webhook{
			name: w.Name, client: w.ClientConfig, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy, sideEffects: w.SideEffects,
			timeout: w.TimeoutSeconds, versions: w.AdmissionReviewVersions, conditions: w.MatchConditions,
			selectors: map[string]*metav1.LabelSelector{"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector},
		}.validate(path, seen)...)
		if p := w.ReinvocationPolicy; p != nil {
			errs = append(errs, oneOf(path.Child("reinvocationPolicy"), *p, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)...)
		}
	}
	return errs
}

// webhook is what validating and mutating webhooks have in common.
type webhook struct {
	name        string
	client      admissionregistrationv1.WebhookClientConfig
	rules       []admissionregistrationv1.RuleWithOperations
	failure     *admissionregistrationv1.FailurePolicyType
	match       *admissionregistrationv1.MatchPolicyType
	sideEffects *admissionregistrationv1.SideEffectClass
	timeout     *int32
	versions    []string
	conditions  []admissionregistrationv1.MatchCondition
	selectors   map[string]*metav1.LabelSelector
}

func (w webhook) validate(path *field.Path, seen map[string]bool) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), w.name)
	if seen[w.name] {
		errs = append(errs, field.Duplicate(path.Child("name"), w.name))
	}
	seen[w.name] = true
	if w.failure != nil {
		errs = append(errs, oneOf(path.Child("failurePolicy"), *w.failure, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if w.match != nil {
		errs = append(errs, oneOf(path.Child("matchPolicy"), *w.match, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)...)
	}
	if w.sideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(path.Child("sideEffects"), *w.sideEffects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	}
	if w.timeout != nil && (*w.timeout < 1 || *w.timeout > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *w.timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	for name, s := range w.selectors {
		if s != nil {
			errs = append(errs, metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path.Child(name))...)
		}
	}
	errs = append(errs, w.validateVersions(path.Child("admissionReviewVersions"))...)
	errs = append(errs, w.validateClient(path.Child("clientConfig"))...)
	errs = append(errs, w.validateRules(path.Child("rules"))...)
	return append(errs, w.validateConditions(path.Child("matchConditions"))...)
}

func (w webhook) validateVersions(path *field.Path) field.ErrorList {
	if len(w.versions) == 0 {
		return field.ErrorList{field.Required(path, fmt.Sprintf("must specify one of %v", reviewVersions))}
	}
	if !slices.ContainsFunc(w.versions, func(v string) bool { return slices.Contains(reviewVersions, v) }) {
		return field.ErrorList{field.Invalid(path, w.versions, fmt.Sprintf("must include at least one of %v", reviewVersions))}
	}
	return nil
}

func (w webhook) validateClient(path *field.Path) field.ErrorList {
	c := w.client
	errs := field.ErrorList{}
	if len(c.CABundle) > 0 {
		errs = append(errs, webhookutil.ValidateCABundle(path.Child("caBundle"), c.CABundle)...)
	}
	switch {
	case (c.URL == nil) == (c.Service == nil):
		errs = append(errs, field.Required(path, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, webhookutil.ValidateWebhookURL(path.Child("url"), *c.URL, true)...)
	default:
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		errs = append(errs, webhookutil.ValidateWebhookService(path.Child("service"), c.Service.Namespace, c.Service.Name, c.Service.Path, port)...)
	}
	return errs
}

func (w webhook) validateRules(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range w.rules {
		at := path.Index(i)
		for part, n := range map[string]int{"operations": len(r.Operations), "apiGroups": len(r.APIGroups), "apiVersions": len(r.APIVersions), "resources": len(r.Resources)} {
			if n == 0 {
				errs = append(errs, field.Required(at.Child(part), ""))
			}
		}
		for j, o := range r.Operations {
			errs = append(errs, oneOf(at.Child("operations").Index(j), o, admissionregistrationv1.OperationAll,
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect)...)
		}
		if r.Scope != nil {
			errs = append(errs, oneOf(at.Child("scope"), *r.Scope, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes)...)
		}
	}
	return errs
}

// validateConditions compiles the conditions as their execution will.
func (w webhook) validateConditions(path *field.Path) field.ErrorList {
	if len(w.conditions) == 0 {
		return nil
	}
	if len(w.conditions) > 64 {
		return field.ErrorList{field.TooMany(path, len(w.conditions), 64)}
	}
	compiler := plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range w.conditions {
		c := (*matchconditions.MatchCondition)(&w.conditions[i])
		at := path.Index(i)
		errs = append(errs, qualifiedName(at.Child("name"), c.Name)...)
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
		result := compiler.CompileCELExpression(c, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
		if result.Error != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), c.Expression, result.Error.Detail))
		}
	}
	return errs
}
