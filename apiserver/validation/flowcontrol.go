package validation

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

const (
	mostMatchingPrecedence = 10000
	everything             = "*"
)

// flowVerbs are the verbs that rules may name.
var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

// FlowSchema validates a FlowSchema. Those that protect administrators are as they are.
func FlowSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	errs := metadata(f, false, apivalidation.NameIsDNSSubdomain)
	errs = append(errs, precedence(f)...)
	if m := f.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, oneOf(specPath.Child("distinguisherMethod", "type"), m.Type,
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	level := specPath.Child("priorityLevelConfiguration", "name")
	if name := f.Spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, dnsSubdomain(level, name)...)
	}
	for i := range f.Spec.Rules {
		errs = append(errs, flowRules(specPath.Child("rules").Index(i), &f.Spec.Rules[i])...)
	}
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == f.Name && !equality.Semantic.DeepEqual(fixed.Spec, f.Spec) {
			errs = append(errs, field.Invalid(specPath, f.Name, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
		}
	}
	return errs
}

func precedence(f *flowcontrolv1.FlowSchema) field.ErrorList {
	at, n := specPath.Child("matchingPrecedence"), f.Spec.MatchingPrecedence
	switch {
	case n <= 0:
		return field.ErrorList{field.Invalid(at, n, "must be a positive value")}
	case n > mostMatchingPrecedence:
		return field.ErrorList{field.Invalid(at, n, fmt.Sprintf("must not be greater than %v", mostMatchingPrecedence))}
	case n == 1 && f.Name != flowcontrolv1.FlowSchemaNameExempt:
		return field.ErrorList{field.Invalid(at, n, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

// FlowSchemaStatus validates a changed status.
func FlowSchemaStatus(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var errs field.ErrorList
	known := map[flowcontrolv1.FlowSchemaConditionType]bool{}
	for i, c := range f.Status.Conditions {
		at := statusPath.Child("conditions").Index(i).Child("type")
		switch {
		case c.Type == "":
			errs = append(errs, field.Required(at, "must not be empty"))
		case known[c.Type]:
			errs = append(errs, field.Duplicate(at, c.Type))
		}
		known[c.Type] = true
	}
	return errs
}

func flowRules(at *field.Path, r *flowcontrolv1.PolicyRulesWithSubjects) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, flowSubject(at.Child("subjects").Index(i), &r.Subjects[i])...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i, rule := range r.ResourceRules {
		at := at.Child("resourceRules").Index(i)
		errs = append(errs, verbs(at, rule.Verbs)...)
		errs = append(errs, someOrAll(at, "apiGroups", rule.APIGroups)...)
		errs = append(errs, someOrAll(at, "resources", rule.Resources)...)
		errs = append(errs, flowNamespaces(at.Child("namespaces"), rule)...)
	}
	for i, rule := range r.NonResourceRules {
		at := at.Child("nonResourceRules").Index(i)
		errs = append(errs, verbs(at, rule.Verbs)...)
		errs = append(errs, someOrAll(at, "nonResourceURLs", rule.NonResourceURLs)...)
		for j, url := range rule.NonResourceURLs {
			if message := urlPattern(url); url != everything && message != "" {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs").Index(j), url, message))
			}
		}
	}
	return errs
}

func flowNamespaces(at *field.Path, rule flowcontrolv1.ResourcePolicyRule) field.ErrorList {
	if len(rule.Namespaces) == 0 {
		if rule.ClusterScope {
			return nil
		}
		return field.ErrorList{field.Required(at, "resource rules that are not cluster scoped must supply at least one namespace")}
	}
	if slices.Contains(rule.Namespaces, everything) {
		if len(rule.Namespaces) > 1 {
			return field.ErrorList{field.Invalid(at, rule.Namespaces, "if '*' is present, must not specify other namespaces")}
		}
		return nil
	}
	var errs field.ErrorList
	for i, namespace := range rule.Namespaces {
		errs = append(errs, dnsLabel(at.Index(i), namespace)...)
	}
	return errs
}

func verbs(at *field.Path, list []string) field.ErrorList {
	if errs := someOrAll(at, "verbs", list); len(errs) > 0 || slices.Contains(list, everything) {
		return errs
	}
	for _, verb := range list {
		if !slices.Contains(flowVerbs, verb) {
			return field.ErrorList{field.NotSupported(at.Child("verbs"), verb, flowVerbs)}
		}
	}
	return nil
}

// someOrAll requires values, or the one that stands for all.
func someOrAll(at *field.Path, name string, list []string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at.Child(name), name+" must contain at least one value")}
	}
	if slices.Contains(list, everything) && len(list) > 1 {
		return field.ErrorList{field.Invalid(at.Child(name), list, "if '*' is present, must not specify other "+name)}
	}
	return nil
}

// urlPattern says what is wrong with a path, or a prefix that ends with "/*".
func urlPattern(path string) string {
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(path, "/*"), everything):
		return "wildcard can only do suffix matching"
	}
	return ""
}

func flowSubject(at *field.Path, s *flowcontrolv1.Subject) field.ErrorList {
	kinds := map[flowcontrolv1.SubjectKind]struct {
		field string
		given bool
	}{
		flowcontrolv1.SubjectKindUser:           {"user", s.User != nil},
		flowcontrolv1.SubjectKindGroup:          {"group", s.Group != nil},
		flowcontrolv1.SubjectKindServiceAccount: {"serviceAccount", s.ServiceAccount != nil},
	}
	errs := oneOf(at.Child("kind"), s.Kind, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	for _, kind := range []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount} {
		switch part := kinds[kind]; {
		case part.given && kind != s.Kind:
			errs = append(errs, field.Forbidden(at.Child(part.field), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", part.field, kind)))
		case !part.given && kind == s.Kind:
			errs = append(errs, field.Required(at.Child(part.field), fmt.Sprintf("%s is required when subject kind is '%s'", part.field, kind)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	switch s.Kind {
	case flowcontrolv1.SubjectKindUser:
		return given(at.Child("user", "name"), s.User.Name)
	case flowcontrolv1.SubjectKindGroup:
		return given(at.Child("group", "name"), s.Group.Name)
	}
	account := at.Child("serviceAccount")
	errs = append(given(account.Child("name"), s.ServiceAccount.Name), given(account.Child("namespace"), s.ServiceAccount.Namespace)...)
	if name := s.ServiceAccount.Name; name != "" && name != everything {
		errs = append(errs, dnsSubdomain(account.Child("name"), name)...)
	}
	if namespace := s.ServiceAccount.Namespace; namespace != "" {
		errs = append(errs, dnsLabel(account.Child("namespace"), namespace)...)
	}
	return errs
}

func given(at *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}
