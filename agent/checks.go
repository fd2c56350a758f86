package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns/redirect"
	"github.com/fairway-net/fairway/endpoint/check"
	"github.com/fairway-net/fairway/internal/nodeaddrs"
	"github.com/fairway-net/fairway/kube"
)

// newChecks makes what runs this node's health checks; it does nothing as long
// as no Service asks for any.
func (a *Agent) newChecks() *check.Checker {
	return check.NewChecker(check.Config{
		Client: a.client, Node: a.config.NodeName, Addresses: ownAddresses, Log: a.config.Log,
		Tell: func(service types.NamespacedName, message string) {
			a.events.ReportService(service, compile.ReasonInvalid, message)
		},
	})
}

// alsoServices has health checks and published endpoints hear of Services too.
func (a *Agent) alsoServices(sink kube.Sink[*corev1.Service]) kube.Sink[*corev1.Service] {
	return both(sink, kube.Sink[*corev1.Service]{
		Set:    func(s *corev1.Service) { a.checks.SetService(s); a.publish.SetService(s) },
		Delete: func(key types.NamespacedName) { a.checks.DeleteService(key); a.publish.DeleteService(key) },
		Synced: func() { a.checks.Synced(partServices) },
	})
}

// alsoSlices has health checks and published endpoints hear of EndpointSlices too.
func (a *Agent) alsoSlices(sink kube.Sink[*discoveryv1.EndpointSlice]) kube.Sink[*discoveryv1.EndpointSlice] {
	return both(sink, kube.Sink[*discoveryv1.EndpointSlice]{
		Set:    func(s *discoveryv1.EndpointSlice) { a.checks.SetSlice(s); a.publish.SetSlice(s) },
		Delete: func(key types.NamespacedName) { a.checks.DeleteSlice(key); a.publish.DeleteSlice(key) },
		Synced: func() { a.checks.Synced(partSlices) },
	})
}

// both hands everything to one sink and then to the other.
func both[T runtime.Object](first, second kube.Sink[T]) kube.Sink[T] {
	return kube.Sink[T]{
		Set:    func(o T) { first.Set(o); second.Set(o) },
		Delete: func(n types.NamespacedName) { first.Delete(n); second.Delete(n) },
		Synced: func() { first.Synced(); second.Synced() },
	}
}

// ownAddresses lists the addresses of this machine.
func ownAddresses() ([]netip.Addr, error) {
	return nodeaddrs.List(foreignInterfaces()...)
}

// foreignInterfaces are those whose addresses are not the node's own, but of
// Services.
func foreignInterfaces() []string {
	names := []string{redirect.Interface}
	for _, k := range dataplane.Kinds() {
		names = append(names, k.Interfaces...)
	}
	return names
}
