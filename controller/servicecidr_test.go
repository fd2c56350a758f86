//go:build !race

package controller_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/controller/servicecidr"
)

// testServiceRanges: a range that is added is used, also for a Service that asks for
// one of its addresses; every address has an IPAddress, which comes back; and the
// range goes when no address needs it.
func testServiceRanges(r *rig) {
	const wanted, second = "10.98.7.9", "fd00:98::9"
	r.do(func() (metav1.Object, error) {
		return r.client.NetworkingV1().ServiceCIDRs().Create(context.Background(), &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "added"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.98.7.0/24", "fd00:98::/112"}},
		}, metav1.CreateOptions{})
	})
	dual := corev1.IPFamilyPolicyRequireDualStack
	service := service("web", nil)
	service.Spec.ClusterIP, service.Spec.ClusterIPs, service.Spec.IPFamilyPolicy = wanted, []string{wanted, second}, &dual
	r.eventually("a Service has addresses of the added range", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Services(r.ns).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
	r.expectIPAddress(wanted, corev1.IPv4Protocol)
	r.expectIPAddress(second, corev1.IPv6Protocol)
	if err := r.client.NetworkingV1().IPAddresses().Delete(context.Background(), wanted, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.expectIPAddress(wanted, corev1.IPv4Protocol)

	if err := r.client.NetworkingV1().ServiceCIDRs().Delete(context.Background(), "added", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.eventually("the range says that it is needed", func(ctx context.Context) error {
		cidr, err := r.client.NetworkingV1().ServiceCIDRs().Get(ctx, "added", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != networkingv1.ServiceCIDRReasonTerminating || !strings.Contains(ready.Message, "2 addresses") {
			return fmt.Errorf("the condition is %+v", ready)
		}
		return nil
	})
	r.deleteService("web")
	r.eventually("the range and its addresses are gone", func(ctx context.Context) error {
		if _, err := r.client.NetworkingV1().ServiceCIDRs().Get(ctx, "added", metav1.GetOptions{}); gone(err) != nil {
			return gone(err)
		}
		_, err := r.client.NetworkingV1().IPAddresses().Get(ctx, second, metav1.GetOptions{})
		return gone(err)
	})
}

func (r *rig) expectIPAddress(ip string, family corev1.IPFamily) {
	r.Helper()
	r.eventually("the IPAddress "+ip, func(ctx context.Context) error {
		object, err := r.client.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{})
		if err != nil {
			return err
		}
		parent := networkingv1.ParentReference{Resource: "services", Namespace: r.ns, Name: "web"}
		if object.Spec.ParentRef == nil || *object.Spec.ParentRef != parent {
			return fmt.Errorf("its parent is %+v", object.Spec.ParentRef)
		}
		if object.Labels[networkingv1.LabelManagedBy] != servicecidr.Manager || object.Labels[networkingv1.LabelIPAddressFamily] != string(family) {
			return fmt.Errorf("its labels are %v", object.Labels)
		}
		return nil
	})
}
