package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// target is an address at which a Service shall answer.
type target struct {
	network, address string
}

func (t target) String() string {
	if t.network == "udp" {
		return "udp://" + t.address
	}
	return "http://" + t.address
}

// targets are the addresses of a Service: its cluster IPs and, if it has node
// ports, all nodes.
func targets(s *corev1.Service, nodes []string) []target {
	var list []target
	for _, p := range s.Spec.Ports {
		network := strings.ToLower(cmp.Or(string(p.Protocol), "tcp"))
		for _, ip := range s.Spec.ClusterIPs {
			list = append(list, target{network, net.JoinHostPort(ip, strconv.Itoa(int(p.Port)))})
		}
		for _, node := range nodes {
			family := corev1.IPv4Protocol
			if strings.Contains(node, ":") {
				family = corev1.IPv6Protocol
			}
			if p.NodePort != 0 && slices.Contains(s.Spec.IPFamilies, family) {
				list = append(list, target{network, net.JoinHostPort(node, strconv.Itoa(int(p.NodePort)))})
			}
		}
	}
	return list
}

// backends are the names that may answer for a Service: its pods or, without a
// selector, the outside client, where the example's EndpointSlice leads.
func (d *demo) backends(ctx context.Context, s *corev1.Service) ([]string, error) {
	if len(s.Spec.Selector) == 0 {
		return []string{"client"}, nil
	}
	pods, err := d.client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Spec.Selector).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var names []string
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names, nil
}

// checkTarget waits until all backends have answered, and then counts: every
// answer must come, and from a backend, and all backends must get their share.
func (d *demo) checkTarget(ctx context.Context, from vantage, t target, backends []string) error {
	missing := map[string]bool{}
	for _, b := range backends {
		missing[b] = true
	}
	err := poll(ctx, func() error {
		for range 2 * len(backends) {
			name, err := from.ask(ctx, t)
			if err != nil {
				return err
			}
			delete(missing, name)
		}
		if len(missing) > 0 {
			return fmt.Errorf("no answer from %v", slices.Sorted(maps.Keys(missing)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	counts := map[string]int{}
	total := d.ask * len(backends)
	for range total {
		name, err := from.ask(ctx, t)
		if err != nil {
			return err
		}
		if !slices.Contains(backends, name) {
			return fmt.Errorf("answered by %q, which is none of %v", name, backends)
		}
		counts[name]++
	}
	d.print(from, t, total, counts, backends)
	if len(counts) < len(backends) {
		return errors.New("some backends got nothing of " + strconv.Itoa(total) + " requests")
	}
	return nil
}

// print prints one line: how many answers each backend gave.
func (d *demo) print(from vantage, t target, total int, counts map[string]int, backends []string) {
	shares := make([]string, len(backends))
	for i, b := range backends {
		shares[i] = strconv.Itoa(counts[b])
	}
	place, _, _ := strings.Cut(from.name, " ")
	fmt.Fprintf(d.out, "  from %-8s %-36s %3d of %d answered: %s\n", place, t, total, total, strings.Join(shares, " + "))
}
