package demo

import (
	"context"
	"fmt"
	"net"
	"slices"

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
	return nil
}

// checkName checks that a server has exactly these addresses for a name.
func (v vantage) checkName(ctx context.Context, server, name string, want []string) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		err = v.ns.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(server, "53"))
			return err
		})
		return conn, err
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
