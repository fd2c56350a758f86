package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
)

// RBAC decides by the Roles and bindings in the API (Kubernetes' "Using RBAC
// Authorization"). It reads them from informers, and so knows of a change a few
// milliseconds after it was written.
type RBAC struct {
	roles               rbaclisters.RoleLister
	roleBindings        rbaclisters.RoleBindingLister
	clusterRoles        rbaclisters.ClusterRoleLister
	clusterRoleBindings rbaclisters.ClusterRoleBindingLister
}

// NewRBAC returns an evaluator. The caller starts the informers.
func NewRBAC(informers rbacinformers.Interface) *RBAC {
	return &RBAC{
		roles: informers.Roles().Lister(), roleBindings: informers.RoleBindings().Lister(),
		clusterRoles: informers.ClusterRoles().Lister(), clusterRoleBindings: informers.ClusterRoleBindings().Lister(),
	}
}

// Authorize allows what a rule of a role bound to the user permits, and has no
// opinion on the rest.
func (r *RBAC) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason := authorizer.DecisionNoOpinion, ""
	err := r.visit(a.GetUser(), a.GetNamespace(), func(source string, rule *rbacv1.PolicyRule) bool {
		if allows(rule, a) {
			decision, reason = authorizer.DecisionAllow, "RBAC: allowed by "+source
			return false
		}
		return true
	})
	if decision == authorizer.DecisionAllow {
		return decision, reason, nil
	}
	if err != nil { // a binding to a role that isn't there binds nothing
		reason = "RBAC: " + err.Error()
	}
	return decision, reason, nil
}

// Rules returns all rules that a user has in a namespace, those of the whole
// cluster included; without a namespace only these. Roles that are bound but
// don't exist are in the error; the rules are right all the same.
func (r *RBAC) Rules(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	err := r.visit(u, namespace, func(_ string, rule *rbacv1.PolicyRule) bool {
		rules = append(rules, *rule)
		return true
	})
	return rules, err
}

// visit calls each with the rules that a user has in a namespace, until it
// returns false.
func (r *RBAC) visit(u user.Info, namespace string, each func(source string, rule *rbacv1.PolicyRule) bool) error {
	everything := labels.Everything()
	clusterBindings, err := r.clusterRoleBindings.List(everything)
	if err != nil {
		return fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	var missing []error
	visitRole := func(source string, subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) bool {
		if !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return isSubject(&s, u, namespace) }) {
			return true
		}
		rules, err := r.RulesOf(ref, namespace)
		if err != nil {
			missing = append(missing, err)
		}
		for i := range rules {
			if !each(fmt.Sprintf("%s of %s %q", source, ref.Kind, ref.Name), &rules[i]) {
				return false
			}
		}
		return true
	}
	for _, b := range clusterBindings {
		if !visitRole(fmt.Sprintf("ClusterRoleBinding %q", b.Name), b.Subjects, b.RoleRef, "") {
			return nil
		}
	}
	if namespace != "" {
		bindings, err := r.roleBindings.RoleBindings(namespace).List(everything)
		if err != nil {
			return fmt.Errorf("list RoleBindings: %w", err)
		}
		for _, b := range bindings {
			if !visitRole(fmt.Sprintf("RoleBinding %q", b.Name+"/"+b.Namespace), b.Subjects, b.RoleRef, namespace) {
				return nil
			}
		}
	}
	return errors.Join(missing...)
}

// RulesOf returns the rules of the role that a binding in a namespace names.
func (r *RBAC) RulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		role, err := r.roles.Roles(namespace).Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case "ClusterRole":
		role, err := r.clusterRoles.Get(ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("a binding to a %q: only Role and ClusterRole can be bound", ref.Kind))
}
