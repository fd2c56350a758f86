package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/lab/controlplane"
	"github.com/fairway-net/fairway/lab/topology"
)

// KubernetesAuditLog is where a lab's kube-apiserver writes who asked for what.
func KubernetesAuditLog(name string) string { return controlPlane(name).AuditLog() }

// ProxyKubeconfig is what node proxies of a lab with Kubernetes' own control
// plane connect with.
func ProxyKubeconfig(name string) string { return controlPlane(name).ProxyKubeconfig() }

// WriteProxyConfiguration writes the KubeProxyConfiguration of a node, as
// kubeadm would for kube-proxy, and returns the file's name. Fairway's agent
// and kube-proxy take it alike.
func WriteProxyConfiguration(name, node, mode string) (string, error) {
	pods := topology.DefaultOptions()
	text := controlplane.ProxyConfiguration(ProxyKubeconfig(name), pods.Pods4.String()+","+pods.Pods6.String(), mode)
	path := filepath.Join(Dir(name), "kubernetes", node+".conf")
	return path, pki.WriteFile(path, []byte(text), 0o600)
}

func controlPlane(name string) controlplane.Options {
	return controlplane.Options{Dir: filepath.Join(Dir(name), "kubernetes")}
}

// startKubernetes runs Kubernetes' own control plane in the underlay's
// namespace, and makes it reachable on the host's loopback.
func startKubernetes(ctx, within context.Context, s *supervisor) (*apiServer, error) {
	o := controlPlane(s.config.Name)
	o.Binaries, o.ServiceCIDRs, o.Addresses = s.config.Kubernetes, s.config.ServiceCIDRs, s.net.Underlay().Addresses
	if err := o.Prepare(); err != nil {
		return nil, err
	}
	a := &apiServer{nodeKubeconfig: o.ProxyKubeconfig()}
	port, err := openToHost(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if err := a.useRelay(o, port, Kubeconfig(s.config.Name)); err != nil {
		return nil, err
	}
	for _, c := range o.Commands() {
		began := time.Now()
		r := &role{
			lab: s.config.Name, name: c.Name, cgroup: "server/" + c.Name, program: c.Path,
			start: func(cmd *exec.Cmd) error { return s.net.Underlay().Start(cmd) }, args: func() []string { return c.Args },
		}
		s.group.Go(func() error { return r.run(ctx, func() bool { return time.Since(began) > 5*time.Second }) })
		if err := waitKubernetes(within, s.net.Underlay(), c.Name); err != nil {
			return nil, err
		}
	}
	return a, a.waitForAccount(within)
}

// openToHost relays from a port of the host's loopback.
func openToHost(ctx context.Context, s *supervisor, o controlplane.Options) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for kubectl: %w", err)
	}
	to := netip.AddrPortFrom(o.Addresses[0], controlplane.Port).String()
	r := &relay{listeners: []net.Listener{l}, dial: func(ctx context.Context) (net.Conn, error) {
		return s.net.Underlay().DialContext(ctx, "tcp", to)
	}}
	s.group.Go(func() error { return r.run(ctx) })
	return netip.MustParseAddrPort(l.Addr().String()).String(), nil
}

// useRelay writes the kubeconfig for use on the host, and makes a client of it.
func (a *apiServer) useRelay(o controlplane.Options, address, kubeconfig string) error {
	config, err := clientcmd.LoadFromFile(o.AdminKubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	client, err := kube.Config(kubeconfig)
	if err != nil {
		return err
	}
	client.QPS = -1 // the lab's own client is not to be held back
	a.client, err = kube.Client(client)
	return err
}

// waitKubernetes waits until a process of the control plane says that it is
// well. Who says so isn't asked for a certificate: there is nobody else in the
// namespace.
func waitKubernetes(ctx context.Context, underlay *topology.Host, name string) error {
	address := map[string]string{
		"etcd":                    "http://127.0.0.1:2379/health",
		"kube-apiserver":          fmt.Sprintf("https://127.0.0.1:%d/readyz", controlplane.Port),
		"kube-controller-manager": "https://127.0.0.1:10257/healthz",
	}[name]
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: underlay.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	if err := pollHealth(ctx, &client, address); err != nil {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	return nil
}

// waitForAccount waits for the ServiceAccount without which no pod is admitted.
func (a *apiServer) waitForAccount(ctx context.Context) error {
	err := poll(ctx, func() error {
		_, err := a.client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	return nil
}
