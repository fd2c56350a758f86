package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Where claims are kept in etcd. A key's value is the key of the Service that
// owns the number.
const (
	prefix         = "/fairway/claims/"
	clusterIPs     = prefix + "clusterip/"
	nodePorts      = prefix + "nodeport/"
	servicesPrefix = "/registry/services/"
)

// Keys implements storage.Claims for Services.
func (a *Allocator) Keys(object []byte) ([]string, error) {
	svc := &corev1.Service{}
	if _, _, err := a.decoder.Decode(object, nil, svc); err != nil {
		return nil, fmt.Errorf("decode Service: %w", err)
	}
	return keys(svc), nil
}

// Committed implements storage.Claims.
func (a *Allocator) Committed(taken, released []string, revision int64) {
	for _, k := range taken {
		for _, place := range a.find(k) {
			place.pool.take(place.n, revision)
		}
	}
	for _, k := range released {
		for _, place := range a.find(k) {
			place.pool.recordFree(place.n, revision)
		}
	}
}

// keys returns the claims of a Service, each once: two ports of different
// protocols may share a node port.
func keys(svc *corev1.Service) []string {
	var out []string
	for _, ip := range svc.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone && ip != "" {
			out = append(out, ClusterIPKey(ip))
		}
	}
	for _, p := range svc.Spec.Ports {
		if key := NodePortKey(p.NodePort); p.NodePort != 0 && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		out = append(out, NodePortKey(p))
	}
	return out
}

// ClusterIPKey is the claim on an address, however it is spelt.
func ClusterIPKey(ip string) string {
	if addr, err := netip.ParseAddr(ip); err == nil {
		ip = addr.String()
	}
	return clusterIPs + ip
}

// NodePortKey is the claim on a node port, of whichever protocol.
func NodePortKey(port int32) string { return nodePorts + strconv.Itoa(int(port)) }

// find returns the pools, with the number in each, that a key stands for. A claim
// outside today's ranges (they were others once) is honoured in etcd, but needs no
// memory: it is never chosen.
func (a *Allocator) find(key string) []reservation {
	if rest, ok := strings.CutPrefix(key, clusterIPs); ok {
		addr, err := netip.ParseAddr(rest)
		if err != nil {
			return nil
		}
		var places []reservation
		for _, r := range a.containing(addr) {
			n, _ := r.number(addr)
			places = append(places, reservation{r.pool, n})
		}
		return places
	}
	if rest, ok := strings.CutPrefix(key, nodePorts); ok {
		port, err := strconv.ParseInt(rest, 10, 32)
		if err != nil {
			return nil
		}
		if n, ok := a.ports.number(int32(port)); ok {
			return []reservation{{a.ports.pool, n}}
		}
	}
	return nil
}
