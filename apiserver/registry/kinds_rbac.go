package registry

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairway-net/fairway/apiserver/tables"
	"github.com/fairway-net/fairway/apiserver/upstream"
)

func roles() *kind[rbacv1.Role, *rbacv1.Role] {
	return &kind[rbacv1.Role, *rbacv1.Role]{
		version: rbacv1.SchemeGroupVersion, resource: "roles", singular: "role",
		list:  func() runtime.Object { return &rbacv1.RoleList{} },
		rules: upstream.Roles,
		table: tables.Roles(),
	}
}

func clusterRoles() *kind[rbacv1.ClusterRole, *rbacv1.ClusterRole] {
	return &kind[rbacv1.ClusterRole, *rbacv1.ClusterRole]{
		version: rbacv1.SchemeGroupVersion, resource: "clusterroles", singular: "clusterrole",
		list:  func() runtime.Object { return &rbacv1.ClusterRoleList{} },
		rules: upstream.ClusterRoles,
		table: tables.ClusterRoles(),
	}
}

func roleBindings() *kind[rbacv1.RoleBinding, *rbacv1.RoleBinding] {
	return &kind[rbacv1.RoleBinding, *rbacv1.RoleBinding]{
		version: rbacv1.SchemeGroupVersion, resource: "rolebindings", singular: "rolebinding",
		list:  func() runtime.Object { return &rbacv1.RoleBindingList{} },
		rules: upstream.RoleBindings,
		table: tables.RoleBindings(),
	}
}

func clusterRoleBindings() *kind[rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding] {
	return &kind[rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBinding]{
		version: rbacv1.SchemeGroupVersion, resource: "clusterrolebindings", singular: "clusterrolebinding",
		list:  func() runtime.Object { return &rbacv1.ClusterRoleBindingList{} },
		rules: upstream.ClusterRoleBindings,
		table: tables.ClusterRoleBindings(),
	}
}
