package rights

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"
)

// Escalation keeps people from giving rights that they don't have themselves,
// unless they may "escalate" the role or "bind" it (Kubernetes' "Privilege
// escalation prevention and bootstrapping").
type Escalation struct {
	Roles      *RBAC
	Authorizer authorizer.Authorizer
}

// Check refuses a role or binding with which the request's user would grant
// more than they have. old is nil for a new object.
func (e *Escalation) Check(ctx context.Context, obj, old runtime.Object) error {
	switch o := obj.(type) {
	case *rbacv1.Role:
		if was, ok := old.(*rbacv1.Role); ok && equality.Semantic.DeepEqual(was.Rules, o.Rules) {
			return nil
		}
		return e.role(ctx, "roles", o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRole:
		was, ok := old.(*rbacv1.ClusterRole)
		if ok && equality.Semantic.DeepEqual(was.Rules, o.Rules) && equality.Semantic.DeepEqual(was.AggregationRule, o.AggregationRule) {
			return nil
		}
		rules := o.Rules
		if o.AggregationRule != nil && (!ok || !equality.Semantic.DeepEqual(was.AggregationRule, o.AggregationRule)) {
			// Whatever is labelled so later becomes part of it.
			rules = everything()
		}
		return e.role(ctx, "clusterroles", "", o.Name, rules)
	case *rbacv1.RoleBinding:
		return e.binding(ctx, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		return e.binding(ctx, "clusterrolebindings", "", o.Name, o.RoleRef)
	}
	return nil
}

func (e *Escalation) role(ctx context.Context, resource, namespace, name string, rules []rbacv1.PolicyRule) error {
	if e.may(ctx, "escalate", resource, namespace, name) {
		return nil
	}
	return e.covered(ctx, resource, namespace, name, rules)
}

func (e *Escalation) binding(ctx context.Context, resource, namespace, name string, ref rbacv1.RoleRef) error {
	roles := "clusterroles"
	if ref.Kind == "Role" {
		roles = "roles"
	}
	if e.may(ctx, "bind", roles, namespace, ref.Name) {
		return nil
	}
	rules, err := e.Roles.RulesOf(ref, namespace)
	if err != nil {
		return err
	}
	return e.covered(ctx, resource, namespace, name, rules)
}

// covered refuses rules that go beyond the user's own.
func (e *Escalation) covered(ctx context.Context, resource, namespace, name string, rules []rbacv1.PolicyRule) error {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("write %s %s: the request has no user", resource, name))
	}
	// A role that is bound but missing grants nothing: no reason to refuse.
	own, _ := e.Roles.Rules(u, namespace)
	covers, beyond := rbacvalidation.Covers(own, rules)
	if covers {
		return nil
	}
	reason := fmt.Errorf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%v", u.GetName(), u.GetGroups(), beyond)
	return apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, name, reason)
}

func (e *Escalation) may(ctx context.Context, verb, resource, namespace, name string) bool {
	u, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	decision, _, err := e.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: rbacv1.GroupName, APIVersion: "v1", Resource: resource, Namespace: namespace, Name: name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}
