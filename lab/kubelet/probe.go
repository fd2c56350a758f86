package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// handle carries out one probe.
func (c *container) handle(ctx context.Context, h corev1.ProbeHandler) error {
	switch {
	case h.HTTPGet != nil:
		return c.httpGet(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		port, err := c.port(h.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := c.worker.node.DialContext(ctx, "tcp", net.JoinHostPort(cmp.Or(h.TCPSocket.Host, c.address()), port))
		if err != nil {
			return err
		}
		return conn.Close()
	case h.GRPC != nil:
		return c.grpc(ctx, h.GRPC)
	case h.Exec != nil:
		return c.exec(ctx, h.Exec.Command)
	}
	return errors.New("only httpGet, tcpSocket, grpc and exec are known to the lab")
}

// hook carries out a lifecycle hook.
func (c *container) hook(ctx context.Context, h *corev1.LifecycleHandler) error {
	if h.Sleep != nil {
		sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
		return nil
	}
	return c.handle(ctx, corev1.ProbeHandler{HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket, Exec: h.Exec})
}

func (c *container) address() string { return c.sandbox.addresses()[0].String() }

// port is a probe's port: a number or the name of one of the container's.
func (c *container) port(p intstr.IntOrString) (string, error) {
	if p.Type == intstr.Int {
		return strconv.Itoa(int(p.IntVal)), nil
	}
	for _, named := range c.spec.Ports {
		if named.Name == p.StrVal {
			return strconv.Itoa(int(named.ContainerPort)), nil
		}
	}
	return "", fmt.Errorf("port %q: no container port has this name", p.StrVal)
}

// httpGet succeeds with a status from 200 to 399, without following redirects.
func (c *container) httpGet(ctx context.Context, a *corev1.HTTPGetAction) error {
	port, err := c.port(a.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if a.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	address := net.JoinHostPort(cmp.Or(a.Host, c.address()), port)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+trimSlash(a.Path), nil)
	if err != nil {
		return fmt.Errorf("path %q: %w", a.Path, err)
	}
	for _, h := range a.HTTPHeaders {
		r.Header.Add(h.Name, h.Value)
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			r.Host = h.Value
		}
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // probes don't verify (API documentation)
		DialContext:       c.worker.node.DialContext,             // as a kubelet does
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10)); err != nil {
		slog.Debug("a probe's answer could not be read", "error", err)
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	}
	return nil
}

func trimSlash(path string) string {
	if path != "" && path[0] == '/' {
		return path[1:]
	}
	return path
}

// grpc asks the server for its health (grpc.health.v1).
func (c *container) grpc(ctx context.Context, a *corev1.GRPCAction) error {
	address := net.JoinHostPort(c.address(), strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.worker.node.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: ptr.Deref(a.Service, "")})
	if err != nil {
		return err
	}
	if answer.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("service is %v", answer.Status)
	}
	return nil
}

// exec runs a command as in the container; it succeeds with exit code 0.
func (c *container) exec(ctx context.Context, argv []string) error {
	if len(argv) == 0 {
		return errors.New("exec: no command")
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if own, ok := c.process.(*command); ok {
		cmd.Env = own.environment()
	}
	if err := c.worker.startCommand(c.sandbox, c.spec, cmd); err != nil {
		return err
	}
	return cmd.Wait()
}
