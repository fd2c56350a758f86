package deploy_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestLoadBalancerManifests: with the component, agents announce, with rights in
// MetalLB's namespace only.
func TestLoadBalancerManifests(t *testing.T) {
	objects := build(t, "testdata/loadbalancer")
	agent := find[appsv1.DaemonSet](objects, "fairway")
	if agent == nil || !slices.Contains(agent.Spec.Template.Spec.Containers[0].Args, "--announce") {
		t.Fatal("no agent announces")
	}
	account := find[corev1.ServiceAccount](objects, "fairway")
	role, binding := find[rbacv1.Role](objects, "fairway:announce"), find[rbacv1.RoleBinding](objects, "fairway:announce")
	if role == nil || binding == nil {
		t.Fatal("no Role, or nobody has it")
	}
	if role.Namespace != "metallb-system" || binding.Namespace != role.Namespace || binding.RoleRef.Name != role.Name {
		t.Errorf("role in %s, bound in %s", role.Namespace, binding.Namespace)
	}
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) {
		t.Errorf("bound are %v, want %v", binding.Subjects, subject)
	}
}
