package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubectlAs runs kubectl with a kubeconfig; what it prints is returned with
// how it ended.
func kubectlAs(t *testing.T, s *Server, kubeconfig []byte, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return tryKubectl(t, s, "", append(args, "--kubeconfig="+file)...)
}

// TestRightsByKubectl gives rights to a user and to a ServiceAccount with an
// unmodified kubectl, and takes them away.
func TestRightsByKubectl(t *testing.T) {
	s := sharedServer(t)
	jane, err := s.Kubeconfig("jane", "dev")
	if err != nil {
		t.Fatal(err)
	}
	may := func(want string, args ...string) {
		t.Helper()
		eventually(t, "kubectl auth can-i "+strings.Join(args, " ")+": "+want, func() bool {
			out, _ := kubectlAs(t, s, jane, append([]string{"auth", "can-i"}, args...)...)
			return strings.HasPrefix(strings.TrimSpace(lastLine(out)), want)
		})
	}
	may("no", "list", "services")
	kubectl(t, s, "", "create", "role", "reader", "--verb=get,list", "--resource=services")
	kubectl(t, s, "", "create", "rolebinding", "jane-reads", "--role=reader", "--group=dev")
	may("yes", "list", "services")
	may("no", "list", "services", "-n", "kube-system")
	may("no", "delete", "services")
	if out, err := kubectlAs(t, s, jane, "get", "services", "-n", "default"); err != nil {
		t.Errorf("with the role, jane can't list Services: %s", out)
	}
	if out, _ := kubectlAs(t, s, jane, "auth", "can-i", "--list"); !strings.Contains(out, "services") || !strings.Contains(out, "[get list]") {
		t.Errorf("auth can-i --list prints\n%s", out)
	}
	if out, _ := kubectlAs(t, s, jane, "auth", "whoami"); !strings.Contains(out, "jane") || !strings.Contains(out, "[dev system:authenticated]") {
		t.Errorf("auth whoami prints\n%s", out)
	}
	kubectl(t, s, "", "create", "clusterrolebinding", "jane-edits", "--clusterrole=edit", "--user=jane")
	may("yes", "delete", "services", "-n", "kube-public")
	may("no", "create", "rolebindings")
	kubectl(t, s, "", "delete", "rolebinding/jane-reads", "clusterrolebinding/jane-edits")
	may("no", "list", "services")
	for _, want := range []string{"Role/reader", "cluster-admin", "system:node"} {
		if out := kubectl(t, s, "", "get", "roles,rolebindings,clusterroles,clusterrolebindings", "-A", "-o", "wide"); !strings.Contains(out, want) && want != "Role/reader" {
			t.Errorf("%s isn't in\n%s", want, out)
		}
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// TestNoEscalation: nobody gives what they don't have.
func TestNoEscalation(t *testing.T) {
	s := sharedServer(t)
	kubectl(t, s, "", "create", "rolebinding", "jane", "--clusterrole=admin", "--user=jane", "-n", "default")
	jane, ctx := clientOf(t, s, func() ([]byte, error) { return s.Kubeconfig("jane") }), within(t)
	roles := jane.RbacV1().Roles("default")
	create := func(name string, rule rbacv1.PolicyRule) error {
		_, err := roles.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "that an admin of a namespace makes a role", func() bool {
		return create("part", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}}) == nil
	})
	if err := create("all", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}); !apierrors.IsForbidden(err) {
		t.Errorf("a role with more than its author has: %v, want forbidden", err)
	}
	role, err := roles.Get(ctx, "part", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules[0].Verbs = []string{"*"}
	if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("widening a role beyond its author's: %v, want forbidden", err)
	}
	bind := func(name string) error {
		_, err := jane.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "b-"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}},
		}, metav1.CreateOptions{})
		return err
	}
	if err := bind("view"); err != nil {
		t.Errorf("binding a role that its author has: %v", err)
	}
	if err := bind("cluster-admin"); !apierrors.IsForbidden(err) {
		t.Errorf("binding cluster-admin: %v, want forbidden", err)
	}
	if err := create("empty", rbacv1.PolicyRule{}); !apierrors.IsInvalid(err) {
		t.Errorf("a role with an empty rule: %v, want invalid", err)
	}
}

// TestServiceAccountTokens: kubectl create token, and what the token is good for.
func TestServiceAccountTokens(t *testing.T) {
	s := sharedServer(t)
	kubectl(t, s, "", "create", "serviceaccount", "robot")
	kubectl(t, s, "", "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
	token := strings.TrimSpace(kubectl(t, s, "", "create", "token", "robot"))
	as := func(token string, args ...string) string {
		t.Helper()
		out, _ := tryKubectl(t, s, "", append([]string{
			"--server=" + s.URL(), "--certificate-authority=" + filepath.Join(s.config.DataDir, "pki", "ca.crt"), "--kubeconfig=/dev/null", "--token=" + token,
		}, args...)...)
		return out
	}
	if out := as(token, "auth", "whoami"); !strings.Contains(out, "system:serviceaccount:default:robot") || !strings.Contains(out, "system:serviceaccounts:default") {
		t.Errorf("auth whoami prints\n%s", out)
	}
	eventually(t, "that the token lists Services", func() bool { return strings.Contains(as(token, "get", "services"), "kubernetes") })
	if out := as(token, "get", "secrets"); !strings.Contains(out, "forbidden") {
		t.Errorf("a viewer reads Secrets:\n%s", out)
	}
	elsewhere := strings.TrimSpace(kubectl(t, s, "", "create", "token", "robot", "--audience=elsewhere"))
	if out := as(elsewhere, "get", "services"); !strings.Contains(out, "must be logged in") && !strings.Contains(out, "Unauthorized") {
		t.Errorf("a token for elsewhere is taken:\n%s", out)
	}
	if out, err := tryKubectl(t, s, "", "create", "token", "robot", "--duration=1s"); err == nil {
		t.Errorf("a token of a second: %s", out)
	}
	if out := kubectl(t, s, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+token+`"}}`, "create", "-f", "-", "-o", "jsonpath={.status.authenticated} {.status.user.username}"); out != "true system:serviceaccount:default:robot" {
		t.Errorf("TokenReview says %s", out)
	}
	kubectl(t, s, "", "delete", "serviceaccount", "robot")
	if out := as(token, "auth", "whoami"); strings.Contains(out, "robot") {
		t.Errorf("the token outlives its ServiceAccount:\n%s", out)
	}
}
