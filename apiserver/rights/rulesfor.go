package rights

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// everything is what members of system:masters have.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
}

// Resolver lists a user's rights, for SelfSubjectRulesReview.
type Resolver struct{ Roles *RBAC }

var _ authorizer.RuleResolver = Resolver{}

// RulesFor implements authorizer.RuleResolver. Of a node it says that the list
// is incomplete: what names and labels its objects need is no rule.
func (r Resolver) RulesFor(_ context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	var (
		rules      []rbacv1.PolicyRule
		incomplete bool
		err        error
	)
	switch {
	case slices.Contains(u.GetGroups(), user.NodesGroup):
		rules, incomplete = NodeRules(), true
	case slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup):
		rules = everything()
	default:
		rules, err = r.Roles.Rules(u, namespace)
	}
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, paths, incomplete, err
}
