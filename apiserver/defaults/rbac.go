package defaults

import rbacv1 "k8s.io/api/rbac/v1"

// RoleBinding fills in API groups that can only be the one.
func RoleBinding(b *rbacv1.RoleBinding) {
	roleRef(&b.RoleRef)
	subjects(b.Subjects)
}

// ClusterRoleBinding does what RoleBinding does.
func ClusterRoleBinding(b *rbacv1.ClusterRoleBinding) {
	roleRef(&b.RoleRef)
	subjects(b.Subjects)
}

func roleRef(ref *rbacv1.RoleRef) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
}

func subjects(list []rbacv1.Subject) {
	for i := range list {
		if s := &list[i]; s.APIGroup == "" && s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = rbacv1.GroupName
		}
	}
}
