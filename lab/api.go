package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab/topology"
)

// apiServer is the lab's API server process and the ways to it.
type apiServer struct {
	client         kubernetes.Interface
	nodeKubeconfig string // for use inside the lab

	mu   sync.Mutex
	port string // "0" until it is known
}

// startAPIServer runs an API server on the host's loopback and makes it
// reachable on the underlay; Kubernetes' own, the other way round.
func startAPIServer(ctx, within context.Context, s *supervisor) (*apiServer, error) {
	if s.config.Kubernetes != "" {
		return startKubernetes(ctx, within, s)
	}
	a := &apiServer{port: "0"}
	dir := Dir(s.config.Name)
	data := filepath.Join(dir, "server")
	r := &role{
		lab: s.config.Name, name: "server", cgroup: "server",
		start: (*exec.Cmd).Start, args: func() []string { return a.args(data, s.config, s.net.Underlay()) },
	}
	failed := make(chan error, 1)
	s.group.Go(func() error {
		err := r.run(ctx, func() bool { return a.knownPort() != "0" })
		failed <- err
		return err
	})
	within, cancel := context.WithCancelCause(within)
	defer cancel(nil)
	go func() {
		select {
		case err := <-failed:
			cancel(err)
		case <-within.Done():
		}
	}()
	if err := a.connect(within, filepath.Join(data, "admin.kubeconfig"), Kubeconfig(s.config.Name)); err != nil {
		return nil, err
	}
	return a, a.openToLab(ctx, s)
}

func (a *apiServer) args(data string, c Config, underlay *topology.Host) []string {
	args := []string{
		"server", "--data-dir", data, "--bind-address", "127.0.0.1", "--secure-port", a.knownPort(),
		"--advertise-address", underlay.IPv4().String(), "--tls-san", underlay.IPv6().String(),
		"--kubelet-socket", kubeletSocket(c.Name), "--agent-sockets", Dir(c.Name),
	}
	for _, r := range c.LoadBalancerRanges {
		args = append(args, "--load-balancer-range", r)
	}
	return append(args, "--service-cidr", strings.Join(texts(c.ServiceCIDRs), ","), "--cluster-dns", c.clusterDNS().String())
}

func (a *apiServer) knownPort() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.port
}

// connect waits for the server's kubeconfig, which it writes when it is ready,
// and gives the user a copy.
func (a *apiServer) connect(ctx context.Context, theirs, users string) error {
	err := poll(ctx, func() error {
		config, err := kube.Config(theirs)
		if err != nil {
			return err
		}
		host, err := url.Parse(config.Host)
		if err != nil {
			return fmt.Errorf("server %q of the kubeconfig: %w", config.Host, err)
		}
		config.QPS = -1 // the lab's own client is not to be held back
		if a.client, err = kube.Client(config); err != nil {
			return err
		}
		a.mu.Lock()
		a.port = host.Port()
		a.mu.Unlock()
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	config, err := os.ReadFile(theirs)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if err := os.WriteFile(users, config, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// openToLab relays from the underlay and writes the kubeconfig that says so. The
// server's certificate is checked against the name by which the host knows it.
func (a *apiServer) openToLab(ctx context.Context, s *supervisor) error {
	port, err := strconv.ParseUint(a.port, 10, 16)
	if err != nil {
		return fmt.Errorf("port of the API server: %w", err)
	}
	r, err := newRelay(s.net.Underlay(), uint16(port), net.JoinHostPort("127.0.0.1", a.port))
	if err != nil {
		return err
	}
	s.group.Go(func() error { return r.run(ctx) })
	config, err := clientcmd.LoadFromFile(Kubeconfig(s.config.Name))
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + netip.AddrPortFrom(s.net.Underlay().IPv4(), uint16(port)).String()
		c.TLSServerName = "127.0.0.1"
	}
	a.nodeKubeconfig = filepath.Join(Dir(s.config.Name), "node.kubeconfig")
	if err := clientcmd.WriteToFile(*config, a.nodeKubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// lastLine is the last line of a log, for error messages.
func lastLine(path string) string { return lastLines(path, 1) }

// lastLines are the last n lines of a log.
func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return errors.Join(errors.New("no log"), err).Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
