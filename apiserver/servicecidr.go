package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairway-net/fairway/apiserver/allocator"
	"github.com/fairway-net/fairway/apiserver/validation"
)

// bootstrapServiceCIDR makes the object that tells agents and clients the
// ranges of cluster IPs (KEP-1880), and says so if they are others than before.
func (s *Server) bootstrapServiceCIDR(ctx context.Context, client kubernetes.Interface) error {
	cidrs := client.NetworkingV1().ServiceCIDRs()
	var ranges []string
	for _, p := range s.config.ServiceCIDRs {
		ranges = append(ranges, p.String())
	}
	current, err := cidrs.Get(ctx, validation.DefaultServiceCIDR, metav1.GetOptions{})
	if err == nil && !slices.Equal(current.Spec.CIDRs, ranges) {
		slog.Warn("--service-cidr differs from that of the last start: Services keep their addresses outside the new ranges until they are recreated",
			"before", current.Spec.CIDRs, "now", ranges)
		if err = cidrs.Delete(ctx, current.Name, metav1.DeleteOptions{}); err == nil {
			current, err = cidrs.Get(ctx, validation.DefaultServiceCIDR, metav1.GetOptions{})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
	}
	if err != nil {
		object := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: validation.DefaultServiceCIDR}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
		if current, err = cidrs.Create(ctx, object, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil // another server writes its status, too
		} else if err != nil {
			return fmt.Errorf("create ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
		}
	}
	if meta.IsStatusConditionTrue(current.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
		return nil
	}
	current.Status.Conditions = []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Reason: "InUse",
		Message: "cluster IPs come from here", LastTransitionTime: metav1.Now(),
	}}
	if _, err := cidrs.UpdateStatus(ctx, current, metav1.UpdateOptions{}); ignoreLostRace(err) != nil {
		return fmt.Errorf("write status of ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
	}
	return nil
}

// followServiceCIDRs has the allocator give out addresses of the ServiceCIDRs beside
// the server's own.
func (s *Server) followServiceCIDRs(ctx context.Context, informer networkinginformers.ServiceCIDRInformer) error {
	lister := informer.Lister()
	changed := func(any) {
		list, err := lister.List(labels.Everything())
		if err != nil {
			slog.Warn("ServiceCIDRs could not be listed", "error", err)
			return
		}
		s.allocator.SetRanges(ctx, rangesOf(list))
	}
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed,
	})
	if err != nil {
		return fmt.Errorf("watch ServiceCIDRs: %w", err)
	}
	s.rangesKnown = registration.HasSynced
	return nil
}

// rangesOf returns the ranges of ServiceCIDRs: those that are ready and stay, of
// which addresses are given out, oldest first, and then the others.
func rangesOf(list []*networkingv1.ServiceCIDR) []allocator.Range {
	slices.SortFunc(list, func(a, b *networkingv1.ServiceCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var ranges []allocator.Range
	for _, c := range list {
		ready := meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		for _, text := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && c.Name != validation.DefaultServiceCIDR {
				ranges = append(ranges, allocator.Range{Prefix: p, Closed: !ready || c.DeletionTimestamp != nil})
			}
		}
	}
	slices.SortStableFunc(ranges, func(a, b allocator.Range) int {
		switch {
		case a.Closed == b.Closed:
			return 0
		case a.Closed:
			return 1
		}
		return -1
	})
	return ranges
}
