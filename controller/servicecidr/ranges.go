package servicecidr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// Finalizer keeps a ServiceCIDR until no address needs it; Kubernetes' own.
	Finalizer = "networking.k8s.io/service-cidr-finalizer"
	// defaultName is the ServiceCIDR of the server's own ranges, which the server
	// itself replaces.
	defaultName = "kubernetes"
	// settleTime is how long after its deletion a range is looked through: until then
	// a server that doesn't know of it may still give out an address.
	settleTime = 3 * time.Second
)

// syncRange makes a new range usable, and lets one go that nobody needs.
func (c *Controller) syncRange(ctx context.Context, name string) error {
	cidr, err := c.cidrs.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get ServiceCIDR %s: %w", name, err)
	}
	if cidr.DeletionTimestamp == nil {
		return c.admit(ctx, cidr.DeepCopy())
	}
	if !slices.Contains(cidr.Finalizers, Finalizer) {
		return nil
	}
	return c.dismiss(ctx, cidr.DeepCopy())
}

// admit has a range keep until it isn't needed, and then says that it is ready: from
// then on servers give out its addresses.
func (c *Controller) admit(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	if cidr.Name != defaultName && !slices.Contains(cidr.Finalizers, Finalizer) {
		cidr.Finalizers = append(cidr.Finalizers, Finalizer)
		written, err := c.client.NetworkingV1().ServiceCIDRs().Update(ctx, cidr, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("keep ServiceCIDR %s: %w", cidr.Name, err)
		}
		cidr = written
	}
	if meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
		return nil
	}
	return c.report(ctx, cidr, metav1.ConditionTrue, "InUse", "cluster IPs come from here")
}

// dismiss lets a range go that is being deleted, once no address needs it.
func (c *Controller) dismiss(ctx context.Context, cidr *networkingv1.ServiceCIDR) error {
	example, needed, err := c.needing(cidr)
	if err != nil {
		return err
	}
	wait := settleTime - c.now().Sub(cidr.DeletionTimestamp.Time)
	switch {
	case needed > 0:
		return c.report(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating,
			fmt.Sprintf("%d addresses of this range are in use, such as %s: it goes when their Services are deleted, or when another ServiceCIDR has them", needed, example))
	case wait > 0:
		c.ranges.AddAfter(cidr.Name, wait)
		return c.report(ctx, cidr, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating, "waiting until no server gives out addresses of this range")
	}
	cidr.Finalizers = slices.DeleteFunc(cidr.Finalizers, func(f string) bool { return f == Finalizer })
	if _, err := c.client.NetworkingV1().ServiceCIDRs().Update(ctx, cidr, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let ServiceCIDR %s go: %w", cidr.Name, err)
	}
	return nil
}

// needing counts the addresses of a range that no other range has, and names one.
func (c *Controller) needing(cidr *networkingv1.ServiceCIDR) (example string, count int, err error) {
	all, err := c.cidrs.List(labels.Everything())
	if err != nil {
		return "", 0, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	objects, err := c.objects.List(labels.Everything())
	if err != nil {
		return "", 0, fmt.Errorf("list IPAddresses: %w", err)
	}
	used := map[string]bool{}
	for _, o := range objects {
		used[o.Name] = true
	}
	c.mu.Lock()
	for ip := range c.owners {
		used[ip] = true
	}
	c.mu.Unlock()
	for ip := range used {
		addr, err := netip.ParseAddr(ip)
		if err != nil || !contains(cidr, addr) || slices.ContainsFunc(all, func(o *networkingv1.ServiceCIDR) bool { return stays(o) && contains(o, addr) }) {
			continue
		}
		if count++; example == "" || ip < example {
			example = ip
		}
	}
	return example, count, nil
}

func stays(cidr *networkingv1.ServiceCIDR) bool {
	return cidr.DeletionTimestamp == nil && meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
}

func contains(cidr *networkingv1.ServiceCIDR, addr netip.Addr) bool {
	return slices.ContainsFunc(cidr.Spec.CIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(addr)
	})
}

// lookAtLeaving looks at the ranges that wait to go.
func (c *Controller) lookAtLeaving() {
	all, err := c.cidrs.List(labels.Everything())
	if err != nil {
		return // a list of what is in memory doesn't fail
	}
	for _, cidr := range all {
		if cidr.DeletionTimestamp != nil {
			c.ranges.Add(cidr.Name)
		}
	}
}

// report writes the condition Ready, if it changes.
func (c *Controller) report(ctx context.Context, cidr *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string) error {
	if !meta.SetStatusCondition(&cidr.Status.Conditions, metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: cidr.Generation,
	}) {
		return nil
	}
	if _, err := c.client.NetworkingV1().ServiceCIDRs().UpdateStatus(ctx, cidr, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write status of ServiceCIDR %s: %w", cidr.Name, err)
	}
	return nil
}
