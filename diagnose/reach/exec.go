package reach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// Command is what is run in an agent's pod, by the program at the place that it has in
// the image (deploy/Dockerfile).
const (
	Command = "agent-connect"
	program = "/usr/local/bin/fairway"
)

// idle is how long a connection is kept that nobody asks by.
const idle = 10 * time.Second

// dialer makes connections to an agent's socket by running a command in its pod.
type dialer struct {
	config    *rest.Config
	client    rest.Interface
	pod       *corev1.Pod
	container string
}

// dial begins the command. That it failed is known only once something is read.
func (d *dialer) dial(context.Context, string, string) (net.Conn, error) {
	executor, err := d.executor()
	if err != nil {
		return nil, err
	}
	// The library would log how streams end.
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	near, far := net.Pipe()
	c := &execConn{Conn: near, cancel: cancel}
	go func() {
		var said bytes.Buffer
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: far, Stdout: far, Stderr: &said})
		c.end(err, strings.TrimSpace(strings.TrimPrefix(said.String(), "fairway: ")))
		_ = far.Close() // a pipe's end always closes
	}()
	return c, nil
}

// executor runs the command over WebSockets, or over SPDY where the server knows no
// other, as kubectl does.
func (d *dialer) executor() (remotecommand.Executor, error) {
	request := d.client.Post().Resource("pods").Namespace(d.pod.Namespace).Name(d.pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: d.container, Command: []string{program, Command}, Stdin: true, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(d.config, "POST", request.URL())
	if err != nil {
		return nil, fmt.Errorf("run %s in pod %s: %w", Command, d.pod.Name, err)
	}
	socket, err := remotecommand.NewWebSocketExecutor(d.config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("run %s in pod %s: %w", Command, d.pod.Name, err)
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// execConn is a connection through a command in a pod.
type execConn struct {
	net.Conn
	cancel context.CancelFunc
	mu     sync.Mutex
	why    error // the command has ended
}

// end notes why the command has ended.
func (c *execConn) end(err error, said string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case strings.Contains(said, "unknown command"):
		c.why = errors.New("the program in the pod is older than this way of asking: " + said)
	case err != nil && said != "":
		c.why = fmt.Errorf("%s", said)
	case err != nil:
		c.why = err
	}
}

// Read is net.Conn's; where the command failed, the error says why.
func (c *execConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.why != nil {
		return n, c.why
	}
	return n, err
}

// Close ends the command, too.
func (c *execConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}
