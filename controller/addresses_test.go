//go:build !race

package controller_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairway-net/fairway/apis/metallb/v1beta1"
	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/kube"
)

func balanced(name string, change func(*corev1.Service)) *corev1.Service {
	return service(name, func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		if change != nil {
			change(s)
		}
	})
}

// expectAddress waits for a Service's address and mark; "" is none.
func (r *rig) expectAddress(name, address, pool string) {
	r.Helper()
	r.eventually(fmt.Sprintf("%s has %q", name, address), func(ctx context.Context) error {
		s, err := r.client.CoreV1().Services(r.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			got = append(got, i.IP)
		}
		if text := strings.Join(got, " "); text != address || s.Annotations[v1beta1.AnnotationFromPool] != pool {
			return fmt.Errorf("it has %q of pool %q", text, s.Annotations[v1beta1.AnnotationFromPool])
		}
		return nil
	})
}

func (r *rig) expectEvent(object, reason, text string) {
	r.Helper()
	r.eventually("event "+reason+" of "+object, func(ctx context.Context) error {
		events, err := r.client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name != object {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("there is none that says %q: %q", text, others)
	})
}

// testLoadBalancer: what a Service gets, keeps and gives back, and what is said
// where it gets nothing.
func testLoadBalancer(r *rig) {
	metallb, err := kube.NewMetalLB(r.config)
	if err != nil {
		r.Fatal(err)
	}
	r.createService(balanced("one", nil))
	r.expectAddress("one", "192.0.2.100", addresses.SimpleName)
	r.expectEvent("one", "IPAllocated", "192.0.2.100")
	// What another load balancer gave stays.
	r.createService(balanced("others", func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("example.com/other") }))
	r.giveOther("others", "203.0.113.9")
	r.updateService("one", func(s *corev1.Service) { s.Annotations[v1beta1.AnnotationAllowSharedIP] = "k" })
	r.createService(balanced("two", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.102" }))
	r.expectAddress("two", "192.0.2.102", addresses.SimpleName)
	r.createService(balanced("three", func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.102" }))
	r.expectEvent("three", "AllocationFailed", "is the address of Service "+r.ns+"/two")

	r.deleteService("two")
	r.expectAddress("three", "192.0.2.102", addresses.SimpleName)
	r.updateService("three", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	r.expectAddress("three", "", "")

	r.retryREST(func(ctx context.Context) error {
		pool := &v1beta1.IPAddressPool{
			ObjectMeta: metav1.ObjectMeta{Name: "more", Namespace: v1beta1.DefaultNamespace},
			Spec:       v1beta1.IPAddressPoolSpec{Addresses: []string{"198.51.100.0/30", "192.0.2.103/32", "nonsense"}},
		}
		return metallb.V1beta1.Post().Namespace(pool.Namespace).Resource("ipaddresspools").Body(pool).Do(ctx).Error()
	})
	r.retryREST(func(ctx context.Context) error { // pools of other namespaces are none
		pool := &v1beta1.IPAddressPool{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Namespace: r.ns}, Spec: v1beta1.IPAddressPoolSpec{Addresses: []string{"203.0.113.128/25"}}}
		return metallb.V1beta1.Post().Namespace(pool.Namespace).Resource("ipaddresspools").Body(pool).Do(ctx).Error()
	})
	r.createService(balanced("five", func(s *corev1.Service) {
		s.Annotations = map[string]string{v1beta1.AnnotationAddressPool: "elsewhere"}
	}))
	r.expectEvent("five", "AllocationFailed", `unknown pool "elsewhere"`)
	r.createService(balanced("four", func(s *corev1.Service) {
		s.Annotations = map[string]string{"metallb.universe.tf/address-pool": "more"}
	}))
	r.expectAddress("four", "198.51.100.0", "more")
	r.expectEvent("more", "InvalidConfiguration", "overlaps pool fairway")
	r.eventually("the configuration's state", func(ctx context.Context) error {
		state := &v1beta1.ConfigurationState{}
		err := metallb.V1beta1.Get().Namespace(v1beta1.DefaultNamespace).Resource("configurationstates").Name("controller").Do(ctx).Into(state)
		if err == nil && (state.Status.Result != v1beta1.ConfigurationInvalid || !strings.Contains(state.Status.ErrorSummary, `"nonsense"`)) {
			err = fmt.Errorf("it is %+v", state.Status)
		}
		return err
	})
	r.eventually("the pool's counts", func(ctx context.Context) error {
		pool := &v1beta1.IPAddressPool{}
		err := metallb.V1beta1.Get().Namespace(v1beta1.DefaultNamespace).Resource("ipaddresspools").Name("more").Do(ctx).Into(pool)
		if want := (v1beta1.IPAddressPoolStatus{AssignedIPv4: 1, AvailableIPv4: 3}); err == nil && pool.Status != want {
			err = fmt.Errorf("they are %+v", pool.Status)
		}
		return err
	})

	r.retryREST(func(ctx context.Context) error {
		return metallb.V1beta1.Delete().Namespace(v1beta1.DefaultNamespace).Resource("ipaddresspools").Name("more").Do(ctx).Error()
	})
	r.expectAddress("four", "", "")
	r.expectEvent("four", "ClearAssignment", "no pool has 198.51.100.0")
	r.expectEvent("four", "AllocationFailed", `unknown pool "more"`)
	r.expectAddress("others", "203.0.113.9", "")
	for _, name := range []string{"one", "three", "four", "five", "others"} {
		r.deleteService(name)
	}
}

// giveOther writes an address as another load balancer's controller does.
func (r *rig) giveOther(name, address string) {
	r.Helper()
	r.do(func() (metav1.Object, error) {
		s, err := r.client.CoreV1().Services(r.ns).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		return r.client.CoreV1().Services(r.ns).UpdateStatus(context.Background(), s, metav1.UpdateOptions{})
	})
}

func (r *rig) retryREST(call func(context.Context) error) {
	r.Helper()
	r.eventually("call succeeds", func(ctx context.Context) error {
		err := call(ctx)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}
