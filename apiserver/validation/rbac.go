package validation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// rbacName allows what a path segment may be: "system:node" is a name.
func rbacName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// Role validates a Role.
func Role(r *rbacv1.Role) field.ErrorList {
	return append(metadata(r, true, rbacName), policyRules(r.Rules, true)...)
}

// ClusterRole validates a ClusterRole.
func ClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := append(metadata(r, false, rbacName), policyRules(r.Rules, false)...)
	if r.AggregationRule == nil {
		return errs
	}
	selectors := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		return append(errs, field.Required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i, s := range r.AggregationRule.ClusterRoleSelectors {
		at := selectors.Index(i)
		errs = append(errs, metav1validation.ValidateLabelSelector(&s, metav1validation.LabelSelectorValidationOptions{}, at)...)
		if _, err := metav1.LabelSelectorAsSelector(&s); err != nil {
			errs = append(errs, field.Invalid(at, s, "invalid label selector."))
		}
	}
	return errs
}

func policyRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, r := range rules {
		at := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

// RoleBinding validates a RoleBinding.
func RoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	errs := append(metadata(b, true, rbacName), roleRef(b.RoleRef, "Role", "ClusterRole")...)
	return append(errs, subjects(b.Subjects, true)...)
}

// ClusterRoleBinding validates a ClusterRoleBinding.
func ClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := append(metadata(b, false, rbacName), roleRef(b.RoleRef, "ClusterRole")...)
	return append(errs, subjects(b.Subjects, false)...)
}

// RoleBindingUpdate validates a changed RoleBinding.
func RoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return sameRole(b.RoleRef, old.RoleRef)
}

// ClusterRoleBindingUpdate validates a changed ClusterRoleBinding.
func ClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return sameRole(b.RoleRef, old.RoleRef)
}

// sameRole keeps a binding at its role, so that who may change its subjects
// can't give them another one.
func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
}

func roleRef(ref rbacv1.RoleRef, kinds ...string) field.ErrorList {
	at := field.NewPath("roleRef")
	var errs field.ErrorList
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	errs = append(errs, oneOf(at.Child("kind"), ref.Kind, kinds...)...)
	if ref.Name == "" {
		return append(errs, field.Required(at.Child("name"), ""))
	}
	return append(errs, invalid(at.Child("name"), ref.Name, rbacName(ref.Name, false))...)
}

func subjects(list []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		group := rbacv1.GroupName
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			group = ""
			if s.Name != "" {
				errs = append(errs, dnsSubdomain(at.Child("name"), s.Name)...)
			}
			if s.Namespace == "" && !namespaced {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		case rbacv1.UserKind, rbacv1.GroupKind:
		default:
			errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
			continue
		}
		if s.APIGroup != group {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
		}
	}
	return errs
}
