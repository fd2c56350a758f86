package rights

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether a rule permits a request.
func allows(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !contains(rule.Verbs, rbacv1.VerbAll, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return matchesPath(url, a.GetPath()) })
	}
	return contains(rule.APIGroups, rbacv1.APIGroupAll, a.GetAPIGroup()) &&
		matchesResource(rule.Resources, a.GetResource(), a.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

func contains(list []string, all, value string) bool {
	return slices.Contains(list, all) || slices.Contains(list, value)
}

// matchesPath compares a path with a URL that may end in "*".
func matchesPath(url, path string) bool {
	prefix, found := strings.CutSuffix(url, "*")
	return url == path || found && strings.HasPrefix(path, prefix)
}

// matchesResource reports whether a rule names a resource or its subresource: as "resource", "resource/subresource", "*/subresource" or "*".
func matchesResource(resources []string, resource, subresource string) bool {
	if subresource == "" {
		return contains(resources, rbacv1.ResourceAll, resource)
	}
	return contains(resources, rbacv1.ResourceAll, resource+"/"+subresource) || slices.Contains(resources, "*/"+subresource)
}

// isSubject reports whether a binding's subject is this user. A ServiceAccount that names no
// namespace is in the binding's.
func isSubject(s *rbacv1.Subject, u user.Info, namespace string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name == u.GetName()
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), s.Name)
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		return namespace != "" && serviceaccount.MatchesUsername(namespace, s.Name, u.GetName())
	}
	return false
}
