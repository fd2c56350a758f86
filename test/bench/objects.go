package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// world is what the API has been filled with.
type world struct {
	services []*service // "s0", "s1", ...
	probes   []*service // with one endpoint each
	named    int        // how many Services have been given a name
	next     uint32     // number of the next endpoint address
}

// service is a Service with its one slice.
type service struct {
	name  string
	vip   netip.AddrPort
	addrs []netip.Addr
	slice *discoveryv1.EndpointSlice // as last written
}

const (
	namespace = "default"
	vipPort   = 80
	numProbes = 100
	writers   = 32 // requests to the API at a time
)

// address gives out endpoint addresses in turn; the range has four million.
func (w *world) address() netip.Addr {
	n := atomic.AddUint32(&w.next, 1)%(1<<22-2) + 1
	b := endpointRange.Addr().As4()
	b[1] += byte(n >> 16)
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

func (w *world) addresses(n int) []netip.Addr {
	list := make([]netip.Addr, n)
	for i := range list {
		list[i] = w.address()
	}
	return list
}

// createService writes a Service without a selector; its slice is ours.
func (a *api) createService(ctx context.Context, name string, protocol corev1.Protocol, target int32) (*service, error) {
	created, err := a.client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "main", Port: vipPort, Protocol: protocol, TargetPort: intstr.FromInt32(target),
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Service %s: %w", name, err)
	}
	vip, err := netip.ParseAddr(created.Spec.ClusterIP)
	if err != nil {
		return nil, fmt.Errorf("create Service %s: cluster IP: %w", name, err)
	}
	return &service{name: name, vip: netip.AddrPortFrom(vip, vipPort)}, nil
}

// createSlice writes the slice of a Service.
func (a *api) createSlice(ctx context.Context, s *service, protocol corev1.Protocol, target int32, addrs []netip.Addr) error {
	portName := "main"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: s.name + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: s.name, discoveryv1.LabelManagedBy: "bench.fairway.dev",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpointsOf(s.name, addrs),
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &protocol, Port: &target}},
	}
	created, err := a.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", slice.Name, err)
	}
	s.addrs, s.slice = addrs, created
	return nil
}

// endpointsOf are endpoints as the EndpointSlice controller writes them.
func endpointsOf(name string, addrs []netip.Addr) []discoveryv1.Endpoint {
	yes, no, zone := true, false, "zone1"
	list := make([]discoveryv1.Endpoint, len(addrs))
	for i, a := range addrs {
		node := fmt.Sprintf("worker-%d", i)
		list[i] = discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			NodeName:   &node, Zone: &zone,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-%x", name, a.As4()), UID: "0fb0a1c7-6b6a-4b3f-9df0-5f2f0e5f1b2a"},
		}
	}
	return list
}

// setEndpoints replaces the addresses of a Service.
func (a *api) setEndpoints(ctx context.Context, s *service, addrs []netip.Addr) error {
	next := s.slice.DeepCopy()
	next.Endpoints = endpointsOf(s.name, addrs)
	written, err := a.client.DiscoveryV1().EndpointSlices(namespace).Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update EndpointSlice %s: %w", next.Name, err)
	}
	s.addrs, s.slice = addrs, written
	return nil
}

// deleteService removes a Service with its slice.
func (a *api) deleteService(ctx context.Context, s *service) error {
	if s.slice != nil {
		if err := a.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, s.slice.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete EndpointSlice %s: %w", s.slice.Name, err)
		}
	}
	if err := a.client.CoreV1().Services(namespace).Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Service %s: %w", s.name, err)
	}
	return nil
}

// fill brings the API to the size of a stage.
func (r *run) fill(ctx context.Context, s stage) error {
	w := &r.api.world
	had := len(w.services)
	if s.size.services < had {
		return fmt.Errorf("the API has %d Services already", had)
	}
	if s.has("creates") {
		if err := r.measureCreates(ctx, s); err != nil {
			return err
		}
	} else if err := r.api.addServices(ctx, s.size.services-had); err != nil {
		return err
	}
	list := append([]*service{}, w.services...)
	for len(w.probes) < numProbes {
		p, err := r.api.createService(ctx, fmt.Sprintf("probe%d", len(w.probes)), corev1.ProtocolTCP, helloPort)
		if err != nil {
			return err
		}
		w.probes = append(w.probes, p)
	}
	list = append(list, w.probes...)
	progress := newProgress(r.options.Progress, "EndpointSlices", len(list))
	defer progress.end()
	return each(len(list), writers, func(i int) error {
		defer progress.step()
		svc, want := list[i], s.size.endpoints
		if i >= len(w.services) {
			want = 1
		}
		switch {
		case svc.slice == nil:
			return r.api.createSlice(ctx, svc, corev1.ProtocolTCP, helloPort, w.addresses(want))
		case len(svc.addrs) < want:
			return r.api.setEndpoints(ctx, svc, append(svc.addrs[:len(svc.addrs):len(svc.addrs)], w.addresses(want-len(svc.addrs))...))
		case len(svc.addrs) > want:
			return r.api.setEndpoints(ctx, svc, svc.addrs[:want:want])
		}
		return nil
	})
}

// addServices creates more Services, without slices yet.
func (a *api) addServices(ctx context.Context, n int) error {
	first := a.world.named
	a.world.named += n
	added := make([]*service, n)
	progress := newProgress(a.progress, "Services", n)
	defer progress.end()
	err := each(n, writers, func(i int) (err error) {
		defer progress.step()
		added[i], err = a.createService(ctx, fmt.Sprintf("s%d", first+i), corev1.ProtocolTCP, helloPort)
		return err
	})
	a.world.services = append(a.world.services, slices.DeleteFunc(added, func(s *service) bool { return s == nil })...)
	return err
}

// createsSample is how many creates the rate "at" a size is taken over.
const createsSample = 2000

// measureCreates adds the Services of a stage and takes the rate, over all and
// over the last ones.
func (r *run) measureCreates(ctx context.Context, s stage) error {
	had := len(r.api.world.services)
	missing := s.size.services - had
	sample := min(createsSample, missing/2)
	usedBefore, err := r.api.process.usage.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.api.addServices(ctx, missing-sample); err != nil {
		return err
	}
	at := time.Now()
	if err := r.api.addServices(ctx, sample); err != nil {
		return err
	}
	if sample == 0 {
		return nil
	}
	used, err := r.api.process.usage.cpu()
	if err != nil {
		return err
	}
	over := func(n int, since time.Time) float64 { return float64(n) / time.Since(since).Seconds() }
	r.results.add("creates", s.size, "API", fmt.Sprintf("%.0f/s from %d to %d, %.0f/s over the last %d; %s of the server's processor time for each",
		over(missing, began), had, s.size.services, over(sample, at), sample, milliseconds((used-usedBefore)/time.Duration(missing))))
	return nil
}

// each calls fn for 0 to n-1, so many at a time, until one fails.
func each(n, workers int, fn func(int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for range min(workers, n) {
		group.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := fn(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
