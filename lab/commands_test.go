package lab_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairway-net/fairway/lab"
)

// withoutAPI: where no API answers, or where it doesn't let the user, the commands say
// what agents have in force, and what wasn't checked.
func withoutAPI(t *testing.T, client kubernetes.Interface, name string) {
	service, err := client.CoreV1().Services("default").Get(t.Context(), "healthy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dead, why := deadKubeconfig(t, name), "connection refused"
	saysWithout(t, dead, why, 0, "FORWARDED", "explain", "svc/healthy")
	for _, address := range service.Spec.ClusterIPs {
		saysWithout(t, dead, why, 0, "default/healthy", "explain", net.JoinHostPort(address, "80"))
	}
	saysWithout(t, dead, why, 0, "FORWARDED", "explain", "svc/healthy", "--from", "node/node1")
	saysWithout(t, dead, why, 1, "REFUSED", "explain", "svc/selector", "--from", "pod/any")
	saysWithout(t, dead, why, 2, "did you mean healthy?", "explain", "svc/healty")
	saysWithout(t, dead, why, 0, "endpoints accept connections", "doctor", "svc/healthy")
	saysWithout(t, dead, why, 1, "FW102 proved", "doctor", "svc/unready")
	saysWithout(t, dead, why, 1, "FW102", "doctor", "-A")
	saysWithout(t, dead, why, 0, "looked at by what agents have in force, 0 problems", "doctor", "-A", "-n", "kube-system")
	saysWithout(t, dead, why, 0, "ANSWERED", "trace", "svc/healthy", "--send", "--node", "node1")
	saysWithout(t, dead, "", 0, "as they should be", "dump", "svc/healthy", "--node", "node1")
	saysWithout(t, dead, why, 0, "this is what agents have in force", "status")
	saysWithout(t, dead, why, 0, "TIME", "flows")
	saysWithout(t, dead, "no node that answers has a Service default/healty in force", 0, "TIME", "flows", "--service", "healty")

	few := fewRights(t, client, name)
	saysWithout(t, few, "cannot list resource", 0, "FORWARDED", "explain", "svc/healthy")
	saysWithout(t, few, "cannot list resource", 1, "FW102 proved", "doctor", "svc/unready")
	alone := filepath.Join(t.TempDir(), "kubeconfig") // beside which there is no agent
	text, err := os.ReadFile(few)
	if err == nil {
		err = os.WriteFile(alone, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	saysWithout(t, alone, "cannot list resource", 2, "COULD NOT TELL", "explain", "svc/healthy")
	saysWithout(t, alone, "cannot list resource", 1, "there is no Service default/healty", "explain", "svc/healty")
}

// saysWithout runs a command that can't ask the API for all, and expects it to say both
// what it can say, and why it can't say more.
func saysWithout(t *testing.T, kubeconfig, why string, code int, what string, command ...string) {
	t.Helper()
	out, stderr, got := fairway(append(command, "--kubeconfig", kubeconfig)...)
	if got != code || !strings.Contains(out, what) || !strings.Contains(out+stderr, why) {
		t.Errorf("%s: exit code %d, not %d with %q and %q:\n%s%s", strings.Join(command, " "), got, code, what, why, out, stderr)
	}
}

// deadKubeconfig is a lab's, of a server that doesn't run.
func deadKubeconfig(t *testing.T, name string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return kubeconfigBeside(t, name, "dead", func(c *clientcmdapi.Config) {
		for _, cluster := range c.Clusters {
			cluster.Server = "https://" + at
		}
	})
}

// fewRights is the kubeconfig of a ServiceAccount that may get Services of one namespace.
func fewRights(t *testing.T, client kubernetes.Interface, name string) string {
	meta := metav1.ObjectMeta{Name: "few", Namespace: "default"}
	_, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = client.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
			ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "few"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "few", Namespace: "default"}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "few", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigBeside(t, name, "few", func(c *clientcmdapi.Config) {
		for user := range c.AuthInfos {
			c.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
		}
	})
}

// kubeconfigBeside writes another kubeconfig beside the lab's.
func kubeconfigBeside(t *testing.T, name, as string, change func(*clientcmdapi.Config)) string {
	c, err := clientcmd.LoadFromFile(lab.Kubeconfig(name))
	if err != nil {
		t.Fatal(err)
	}
	change(c)
	path := filepath.Join(lab.Dir(name), as+".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// web runs `fairway web`, and returns what has it print a URL.
func web(t *testing.T, kubeconfig string) (url func() string) {
	c := exec.CommandContext(t.Context(), os.Args[0], "web", "--kubeconfig", kubeconfig)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // it was asked to end
	lines := bufio.NewScanner(out)
	next := func() string {
		for lines.Scan() {
			if line := lines.Text(); strings.HasPrefix(line, "http://") {
				return line
			}
		}
		return "fairway web has ended"
	}
	if first := next(); !strings.HasPrefix(first, "http://") {
		t.Fatal(first)
	}
	return func() string {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return err.Error()
		}
		return next()
	}
}
