package servicecidr

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/internal/queue"
)

// Manager is who IPAddresses of cluster IPs are managed by: what Kubernetes writes
// there.
const Manager = "ipallocator.k8s.io"

// clusterIPs returns a Service's addresses, as RFC 5952 spells them.
func clusterIPs(s *corev1.Service) []string {
	if s == nil {
		return nil
	}
	var list []string
	for _, text := range s.Spec.ClusterIPs {
		if addr, err := netip.ParseAddr(text); err == nil {
			list = append(list, addr.String())
		}
	}
	return list
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (c *Controller) owner(ip string) (types.NamespacedName, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner, ok := c.owners[ip]
	return owner, ok
}

// syncAddress makes the IPAddress of one address right: there if a Service has it,
// and gone if none has. One that somebody else made for an address without a Service
// is left alone.
func (c *Controller) syncAddress(ctx context.Context, ip string) error {
	owner, owned := c.owner(ip)
	object, err := c.objects.Get(ip)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get IPAddress %s: %w", ip, err)
	}
	there := err == nil
	wanted := addressOf(ip, owner)
	switch {
	case !there && owned:
		return c.create(ctx, wanted)
	case !there || object.DeletionTimestamp != nil:
		return nil
	case owned && isRight(object, wanted):
		return nil
	case !owned && object.Labels[networkingv1.LabelManagedBy] != Manager:
		return nil
	}
	if err := c.remove(ctx, object); err != nil || !owned {
		return err
	}
	return c.create(ctx, wanted)
}

// isRight says whether an IPAddress refers to the Service that has the address. Its
// parent can't be changed: a wrong one is made anew.
func isRight(object, wanted *networkingv1.IPAddress) bool {
	for key, value := range wanted.Labels {
		if object.Labels[key] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(object.Spec, wanted.Spec)
}

func addressOf(ip string, owner types.NamespacedName) *networkingv1.IPAddress {
	family := corev1.IPv4Protocol
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
		family = corev1.IPv6Protocol
	}
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip, Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: Manager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: owner.Namespace, Name: owner.Name,
		}},
	}
}

func (c *Controller) create(ctx context.Context, object *networkingv1.IPAddress) error {
	_, err := c.client.NetworkingV1().IPAddresses().Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create IPAddress %s: %w", object.Name, queue.ErrStale)
	}
	if err != nil {
		return fmt.Errorf("create IPAddress %s: %w", object.Name, err)
	}
	return nil
}

func (c *Controller) remove(ctx context.Context, object *networkingv1.IPAddress) error {
	as := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}}
	err := c.client.NetworkingV1().IPAddresses().Delete(ctx, object.Name, as)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete IPAddress %s: %w", object.Name, err)
	}
	return nil
}
