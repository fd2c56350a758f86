package demo

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/lab"
)

// checkNames asks the cluster's DNS for every Service from everywhere.
func (d *demo) checkNames(ctx context.Context, services []corev1.Service, from *vantages) error {
	if d.config.Mode == lab.NoMode {
		return nil // the agents serve DNS
	}
	server, err := d.client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, dns.ServiceName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the DNS Service: %w", err)
	}
	fmt.Fprintf(d.out, "\nnames, from %s:\n", server.Spec.ClusterIP)
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		name := fmt.Sprintf("%s.%s.svc.%s", s.Name, s.Namespace, dns.DefaultOptions().Zone)
		for _, v := range from.all() {
			err := poll(ctx, func() error { return v.checkName(ctx, server.Spec.ClusterIP, name, s.Spec.ClusterIPs) })
			if err != nil {
				return fmt.Errorf("%s from %s: %w", name, v.name, err)
			}
		}
		fmt.Fprintf(d.out, "  %s: %v\n", name, s.Spec.ClusterIPs)
	}
	return d.showCommands(ctx, server.Namespace)
}

// showCommands asks with the programs that people ask with, in a pod that finds
// the cluster's DNS in its resolv.conf.
func (d *demo) showCommands(ctx context.Context, system string) error {
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own executable: %w", err)
	}
	pods, err := d.podNames(ctx)
	if err != nil {
		return err
	}
	pod := slices.Min(slices.Collect(maps.Keys(pods)))
	fmt.Fprintf(d.out, "\nand by programs in the pod %s:\n", pod)
	zone := dns.DefaultOptions().Zone
	for _, c := range []struct{ line, want string }{
		{"nslookup kubernetes.default", "Name:\tkubernetes.default.svc." + zone},
		{"dig +short SRV _http._tcp.web.default.svc." + zone, "web.default.svc." + zone + "."},
		{"dig +short SRV _dns._udp." + dns.ServiceName + "." + system + ".svc." + zone, dns.ServiceName + "." + system + ".svc." + zone + "."},
		{"curl -sS http://web/hostname", "hello-"},
	} {
		argv := strings.Fields(c.line)
		if _, err := exec.LookPath(argv[0]); err != nil {
			fmt.Fprintf(d.out, "  %s: not on this machine\n", argv[0])
			continue
		}
		args := append([]string{"lab", "exec", "--name", d.config.Name, pod, "--"}, argv...)
		out, err := exec.CommandContext(ctx, executable, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", c.line, err, out)
		}
		if !strings.Contains(string(out), c.want) {
			return fmt.Errorf("%s: got %q, want %q in it", c.line, out, c.want)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fmt.Fprintf(d.out, "  %s: %s\n", c.line, lines[len(lines)-1])
	}
	return nil
}

// checkName checks that a server has exactly these addresses for a name.
func (v vantage) checkName(ctx context.Context, server, name string, want []string) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return v.dial(ctx, network, net.JoinHostPort(server, "53"))
	}}
	got, err := resolver.LookupHost(ctx, name+".")
	if err != nil {
		return fmt.Errorf("look up: %w", err)
	}
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		return fmt.Errorf("look up: got %v, want %v", got, want)
	}
	return nil
}
