package kubelet_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// answers waits until a port of a pod answers, at both of its addresses.
func (b *bench) answers(p *corev1.Pod, port int) {
	b.Helper()
	for _, ip := range p.Status.PodIPs {
		address := net.JoinHostPort(ip.IP, strconv.Itoa(port))
		var answer string
		for range wait.Tries(waitTimeout) {
			if answer != "" {
				break
			}
			if c, err := b.node.DialContext(b.Context(), "tcp", address); err == nil {
				answer, _ = ask(c) // again if that fails
				_ = c.Close()
			}
		}
		if answer != p.Name {
			b.Errorf("pod %s at %s: %q", p.Name, address, answer)
		}
	}
}

// TestImages: what stands for images, and what args mean to it.
func TestImages(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]corev1.Container{
		"nginx":   {Image: "docker.io/library/nginx:1.29@sha256:00"},
		"agnhost": {Image: "registry.k8s.io/e2e-test-images/agnhost:2.59", Args: []string{"netexec", "--http-port=81", "--udp-port", "-1"}},
		"command": {Image: "registry.k8s.io/e2e-test-images/agnhost:2.59", Command: []string{"/agnhost", "netexec"}, Args: []string{"--http-port=82"}},
		"tool":    {Image: "example.org/tool:v1", Args: []string{"a", "b c"}},
		"shell":   {Image: "busybox", Args: []string{"sh", "-c", "echo from $HOSTNAME; exec sleep 1000"}},
		"unknown": {Image: "example.org/web:v1", Args: []string{"--serve"}},
	} {
		c.Name = "c"
		b.create(pod(name, c))
	}
	b.answers(b.wait("nginx", "ready", ready), 80)
	b.answers(b.wait("agnhost", "ready", ready), 81)
	b.answers(b.wait("command", "ready", ready), 82)
	b.wait("tool", "ready", ready)
	b.wait("shell", "ready", ready)
	b.wait("unknown", "ready", ready)
	b.waitLog("default_tool_c.log", "tool a b c\n")
	b.waitLog("default_shell_c.log", "from shell\n")
	var explained []string
	for len(b.events) > 0 {
		if e := <-b.events; strings.Contains(e, "NoProgram") {
			explained = append(explained, e)
		}
	}
	if len(explained) != 1 || !strings.Contains(explained[0], `"example.org/web:v1"`) || !strings.Contains(explained[0], "--image web=COMMAND") {
		t.Errorf("events %q", explained)
	}
}

// TestTargetPorts: a pod without a program answers on ports that Services target,
// those that came before it and those that come later, but not those of others.
func TestTargetPorts(t *testing.T) {
	b := newBench(t)
	service := func(name, app string, port int32) {
		_, err := b.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{
				{Name: "a", Port: port}, {Name: "b", Port: 1, TargetPort: intstr.FromInt32(port + 1)}, {Name: "c", Port: 2, TargetPort: intstr.FromString("named")},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	service("before", "web", 7000)
	service("other", "db", 7010)
	p := pod("web", corev1.Container{Name: "c", Image: "example.org/web"})
	p.Labels = map[string]string{"app": "web"}
	b.create(p)
	p = b.wait("web", "ready", ready)
	service("later", "web", 7020)
	for _, port := range []int{7000, 7001, 7020, 7021} {
		b.answers(p, port)
	}
	if c, err := b.connect(p, 7010); err == nil {
		t.Error("it answers on a port of another's Service", c.Close())
	}
	p.Labels["app"] = "db"
	if _, err := b.client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.answers(p, 7010)
}
