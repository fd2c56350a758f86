package rights

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// Reconcile makes the roles and bindings that every cluster has, and gives
// back what was taken from them. What administrators added stays, and a role
// whose annotation rbac.authorization.kubernetes.io/autoupdate is "false" is
// left alone.
func Reconcile(client kubernetes.Interface) error {
	for _, r := range ClusterRoles() {
		options := reconciliation.ReconcileRoleOptions{
			Role:    reconciliation.ClusterRoleRuleOwner{ClusterRole: &r},
			Client:  reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()},
			Confirm: true,
		}
		if _, err := options.Run(); err != nil {
			return fmt.Errorf("reconcile ClusterRole %s: %w", r.Name, err)
		}
	}
	for _, b := range ClusterRoleBindings() {
		options := reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &b},
			Client:      reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()},
			Confirm:     true,
		}
		if _, err := options.Run(); err != nil {
			return fmt.Errorf("reconcile ClusterRoleBinding %s: %w", b.Name, err)
		}
	}
	return nil
}
