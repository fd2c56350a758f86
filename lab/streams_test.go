package lab_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab"
)

// talker is a pod that says something, and serves something.
func talker() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "talker"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{
				Name: "main", Image: "busybox", Command: []string{"sh", "-c", "echo first; echo second >&2; exec sleep 1000"},
				Env: []corev1.EnvVar{{Name: "WHO", Value: "me"}},
			},
			{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}},
			{Name: "shell", Image: "busybox", Command: []string{"sh"}, Stdin: true, TTY: true},
		}},
	}
}

// TestStreams reads a pod's log, runs commands in it, and connects to it, through
// the API server, as kubectl does: by WebSockets, and by SPDY as older ones.
func TestStreams(t *testing.T) {
	c := config("streams")
	c.Nodes = 1
	up(t, c)
	client, err := lab.Client(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	access, err := kube.Config(lab.Kubeconfig(c.Name))
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), talker(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod runs", func() bool {
		pod, err := pods.Get(t.Context(), "talker", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	t.Run("logs", func(t *testing.T) { readLogs(t, client) })
	for _, protocol := range []string{"websocket", "spdy"} {
		t.Run("exec/"+protocol, func(t *testing.T) { runCommands(t, client, access, protocol) })
		t.Run("portforward/"+protocol, func(t *testing.T) { forwardPort(t, client, access, protocol) })
		t.Run("attach/"+protocol, func(t *testing.T) { attachShell(t, client, access, protocol) })
	}
}

func readLogs(t *testing.T, client kubernetes.Interface) {
	logs := func(o *corev1.PodLogOptions) *rest.Request {
		return client.CoreV1().Pods("default").GetLogs("talker", o)
	}
	eventually(t, "the log is whole", func() bool {
		text, err := logs(&corev1.PodLogOptions{Container: "main"}).DoRaw(t.Context())
		return err == nil && string(text) == "first\nsecond\n"
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := logs(&corev1.PodLogOptions{Container: "main", Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if line, err := bufio.NewReader(stream).ReadString('\n'); line != "first\n" {
		t.Errorf("followed, the log begins with %q, %v", line, err)
	}
	for _, refused := range []struct {
		options *corev1.PodLogOptions
		want    string
	}{
		{&corev1.PodLogOptions{}, "a container name must be specified"},
		{&corev1.PodLogOptions{Container: "nosuch"}, "container nosuch is not valid for pod talker"},
		{&corev1.PodLogOptions{Container: "main", Previous: true}, "previous terminated container"},
	} {
		if _, err := logs(refused.options).Stream(t.Context()); err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("got %v, want %s", err, refused.want)
		}
	}
}

func subresource(client kubernetes.Interface, name string) *rest.Request {
	return client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("talker").SubResource(name)
}

func runCommands(t *testing.T, client kubernetes.Interface, access *rest.Config, protocol string) {
	run := func(o corev1.PodExecOptions, in string) (out, errOut string, err error) {
		o.Container, o.Stdin, o.Stdout, o.Stderr = "main", in != "", true, !o.TTY
		location := subresource(client, "exec").VersionedParams(&o, scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewSPDYExecutor(access, http.MethodPost, location)
		if protocol == "websocket" {
			executor, err = remotecommand.NewWebSocketExecutor(access, http.MethodGet, location.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		streams := remotecommand.StreamOptions{Stdout: &stdout, Tty: o.TTY}
		if in != "" {
			streams.Stdin = strings.NewReader(in)
		}
		if !o.TTY {
			streams.Stderr = &stderr
		}
		err = executor.StreamWithContext(t.Context(), streams)
		return stdout.String(), stderr.String(), err
	}
	out, errOut, err := run(corev1.PodExecOptions{Command: []string{"sh", "-c", "echo for $WHO; echo wrong >&2; exit 7"}}, "")
	var exit utilexec.CodeExitError
	if out != "for me\n" || errOut != "wrong\n" || !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("got %q, %q, %v", out, errOut, err)
	}
	if out, _, err := run(corev1.PodExecOptions{Command: []string{"cat"}}, "from outside"); out != "from outside" || err != nil {
		t.Errorf("standard input came back as %q, %v", out, err)
	}
	if out, _, err := run(corev1.PodExecOptions{Command: []string{"tty"}, TTY: true}, ""); !strings.HasPrefix(out, "/dev/pts/") || err != nil {
		t.Errorf("the terminal is %q, %v", out, err)
	}
	if _, _, err := run(corev1.PodExecOptions{Command: []string{"/no/such/program"}}, ""); err == nil {
		t.Error("a program that isn't there ran")
	}
}

// attachShell types in a container's shell until that ends, which is then started
// again.
func attachShell(t *testing.T, client kubernetes.Interface, access *rest.Config, protocol string) {
	attach := func(container, in string, tty bool) (string, error) {
		o := corev1.PodAttachOptions{Container: container, Stdin: true, Stdout: true, TTY: tty}
		location := subresource(client, "attach").VersionedParams(&o, scheme.ParameterCodec).URL()
		executor, err := remotecommand.NewSPDYExecutor(access, http.MethodPost, location)
		if protocol == "websocket" {
			executor, err = remotecommand.NewWebSocketExecutor(access, http.MethodGet, location.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		typed, keys := io.Pipe()
		go func() { _, _ = io.WriteString(keys, in) }() // and no end: the shell's is one
		defer typed.Close()
		var out bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: typed, Stdout: &out, Tty: tty})
		return out.String(), err
	}
	eventually(t, "a shell on a terminal answers", func() bool {
		out, err := attach("shell", "test -t 0 && echo a $((40+2)); exit\n", true)
		return err == nil && strings.Contains(out, "a 42")
	})
	// A server that closes with input unread may have its words lost on the way, as kubelets do.
	eventually(t, "who attaches to a container without standard input is told", func() bool {
		_, err := attach("web", "hello", false)
		return err != nil && strings.Contains(err.Error(), "no standard input")
	})
}

func forwardPort(t *testing.T, client kubernetes.Interface, access *rest.Config, protocol string) {
	location := subresource(client, "portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(access)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, location)
	if protocol == "websocket" {
		if dialer, err = portforward.NewSPDYOverWebsocketDialer(location, access); err != nil {
			t.Fatal(err)
		}
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || !strings.Contains(string(body), "hostname: talker") {
		t.Errorf("got %q, %v", body, err)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
