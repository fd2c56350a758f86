//go:build manynodes

package lab_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestManyNodes: commands reach agents of nodes elsewhere, by nodes/NAME/proxy and by
// pods/exec, with what the user may do; an agent that doesn't answer is named, and the
// rest of the answer is given.
func TestManyNodes(t *testing.T) {
	l := traceIn(t, "nftables")
	here := l.kubeconfig
	l.kubeconfig = filepath.Join(t.TempDir(), "far") // so that nobody finds the lab's sockets by it
	config, err := os.ReadFile(here)
	if err == nil {
		err = os.WriteFile(l.kubeconfig, config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.asked("nodes/proxy")
	l.droppedByAnother(l.services[0])
	l.droppedElsewhere()
	l.watches()
	l.agentKilled(filepath.Dir(here))
	l.rights()
	l.silent(filepath.Dir(here))
	l.inPods(filepath.Dir(here))
	l.asked("pods/exec")
	l.older()
}

// asked runs every command, with what it must say.
func (l *tracing) asked(way string) {
	l.Helper()
	pod := "pod/" + l.pod
	l.says(way, 0, []string{"kernel       node1 (nftables)", "as they should be"}, "explain", "svc/healthy", "--from", pod)
	l.says(way, 0, []string{"kernel       node1 (nftables)", "kernel       node2 (nftables)"}, "explain", "svc/healthy")
	l.says(way, 0, []string{"agents keep up", "endpoints accept connections", "0 problems, 0 notes", "0 not checked"}, "doctor", "svc/healthy", "--from", pod)
	l.says(way, 0, []string{"objects as they should be"}, "dump", "svc/healthy", "--node", "node2")
	l.says(way, 2, []string{"--node: must be one of node1, node2"}, "dump", "svc/healthy")
	l.says(way, 0, []string{"default/healthy:http"}, "flows", "--node", "node1")
	for _, ip := range l.services {
		l.answered(ip)
	}
	l.killed()
}

// agentKilled: an agent that is killed while it traces for somebody elsewhere leaves
// nothing, and who waits for it is told.
func (l *tracing) agentKilled(dir string) {
	l.Helper()
	pid := agentPID(l.T, dir, "node1")
	c := exec.Command(os.Args[0], "trace", "--kubeconfig", l.kubeconfig, "svc/selector", "--node", "node1")
	var said strings.Builder
	c.Stderr = &said
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	eventually(l.T, "the agent traces", func() bool { return l.tables() == 1 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.Fatal(err)
	}
	for late := range wait.Tries(time.Second) {
		if l.tables() == 0 {
			break
		}
		if late {
			l.Fatal("a second after the agent was killed its table is there")
		}
	}
	_ = c.Wait() // its exit code is looked at
	if c.ProcessState.ExitCode() != 2 || strings.Count(said.String(), "\n") != 2 {
		l.Errorf("trace by an agent that was killed: exit code %d: %s", c.ProcessState.ExitCode(), said.String())
	}
	l.Logf("trace by an agent that was killed: %s", said.String())
	eventually(l.T, "the agent is back", func() bool {
		_, _, code := fairway("explain", "--kubeconfig", l.kubeconfig, "svc/healthy", "--node", "node1")
		return code == 0
	})
}

// says runs a command with the test's kubeconfig.
func (l *tracing) says(way string, code int, want []string, args ...string) {
	l.Helper()
	out, stderr, got := fairway(append(args, "--kubeconfig", l.kubeconfig)...)
	for _, w := range want {
		if !strings.Contains(out+stderr, w) {
			l.Errorf("%s: %v says no %q:\n%s%s", way, args, w, out, stderr)
		}
	}
	if got != code {
		l.Errorf("%s: %v: exit code %d, want %d:\n%s%s", way, args, got, code, out, stderr)
	}
}

// rights: who may read objects gets the answer that follows from them; who may also read
// by agents, what agents say; packets are sent for those alone who may write.
func (l *tracing) rights() {
	l.Helper()
	all := l.kubeconfig
	defer func() { l.kubeconfig = all }()
	read := []string{"get", "list", "watch"}
	objects := rbacv1.PolicyRule{APIGroups: []string{"", "discovery.k8s.io", "networking.k8s.io"}, Resources: []string{"services", "pods", "nodes", "endpointslices", "networkpolicies"}, Verbs: read}
	agents := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}}
	pod := "pod/" + l.pod

	l.kubeconfig = l.user("looker", objects)
	l.says("no agents", 0, []string{"FORWARDED to one of 2", "0 of 2 nodes answered", `cannot get resource "nodes/proxy"`}, "explain", "svc/healthy")
	l.says("no agents", 0, []string{`not checked  node1: `, "0 problems"}, "doctor", "svc/healthy", "--from", pod)
	l.says("no agents", 2, []string{"no agent of node node1 answers", "nodes/proxy"}, "trace", "svc/healthy", "--from", pod, "--send")
	l.says("no agents", 2, []string{"no agent answers", "nodes/proxy"}, "flows")

	l.kubeconfig = l.user("reader", objects, agents)
	l.says("reading", 0, []string{"kernel       node1 (nftables)", "as they should be"}, "explain", "svc/healthy", "--from", pod)
	l.says("reading", 0, []string{"default/healthy:http"}, "flows", "--node", "node1")
	l.says("reading", 2, []string{`cannot create resource "nodes/proxy"`}, "trace", "svc/healthy", "--from", pod, "--send")
}

// user makes one with these rights, and a kubeconfig.
func (l *tracing) user(name string, rules ...rbacv1.PolicyRule) string {
	l.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
	_, err := l.client.CoreV1().ServiceAccounts("default").Create(l.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = l.client.RbacV1().ClusterRoles().Create(l.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = l.client.RbacV1().ClusterRoleBindings().Create(l.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		l.Fatal(err)
	}
	token, err := l.client.CoreV1().ServiceAccounts("default").CreateToken(l.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(l.kubeconfig)
	if err != nil {
		l.Fatal(err)
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	file := filepath.Join(l.TempDir(), name)
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		l.Fatal(err)
	}
	eventually(l.T, "the rights of "+name+" are known", func() bool {
		_, _, code := fairway("kubectl", "--kubeconfig", file, "get", "services")
		return code == 0
	})
	return file
}

// silent: an agent that is stopped doesn't answer in time, and the other does.
func (l *tracing) silent(dir string) {
	l.Helper()
	pid := agentPID(l.T, dir, "node2")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		l.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			l.Error(err)
		}
	}()
	l.says("a silent agent", 0, []string{"FORWARDED", "1 of 2 nodes answered", "node2: it doesn't answer in time", "kernel       node1"}, "explain", "svc/healthy")
}

// agentPID is the process of a node's agent.
func agentPID(t *testing.T, dir, node string) int {
	t.Helper()
	var pid int
	out, stderr, _ := fairway("kubectl", "--kubeconfig", filepath.Join(dir, "kubeconfig"), "get", "--raw", "/api/v1/nodes/"+node+"/proxy/v1/status")
	_, rest, _ := strings.Cut(out, `"pid":`)
	if _, err := fmt.Sscanf(rest, "%d", &pid); err != nil {
		t.Fatalf("status of %s: %s%s", node, out, stderr)
	}
	return pid
}

// inPods makes pods that look as agents' do, in which the nodes' agents are found.
func (l *tracing) inPods(dir string) {
	l.Helper()
	for _, node := range []string{"node1", "node2"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=yes exec %q \"$@\" --state-dir %q\n", beFairway, os.Args[0], filepath.Join(dir, node))
		l.agentPod(node, "fairway-"+node, script)
	}
}

// older: an agent whose program doesn't know how it is asked is named, and the rest of the
// answer given.
func (l *tracing) older() {
	l.Helper()
	now := int64(0)
	if err := l.client.CoreV1().Pods("kube-system").Delete(l.Context(), "fairway-node2", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		l.Fatal(err)
	}
	l.agentPod("node2", "fairway-older", "#!/bin/sh\necho 'fairway: unknown command \"agent-connect\" for \"fairway\"' >&2\nexit 1\n")
	l.says("an older agent", 0, []string{"FORWARDED", "1 of 2 nodes answered", "node2: ", "older than this way of asking", "kernel       node1"}, "explain", "svc/healthy")
}

// agentPod makes a pod that looks as an agent's does, with a program.
func (l *tracing) agentPod(node, name, script string) {
	l.Helper()
	executable := int32(0o755)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/name": "fairway", "app.kubernetes.io/component": "proxy"}}
	_, err := l.client.CoreV1().ConfigMaps("kube-system").Create(l.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"fairway": script}}, metav1.CreateOptions{})
	if err == nil {
		_, err = l.client.CoreV1().Pods("kube-system").Create(l.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true,
			Volumes: []corev1.Volume{{Name: "bin", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: &executable,
			}}}},
			Containers: []corev1.Container{{
				Name: "fairway", Image: "fairway", Command: []string{"sleep", "3600"},
				VolumeMounts: []corev1.VolumeMount{{Name: "bin", MountPath: "/usr/local/bin"}},
			}},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		l.Fatal(err)
	}
	eventually(l.T, name+" runs", func() bool {
		p, err := l.client.CoreV1().Pods("kube-system").Get(l.Context(), name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning
	})
}
