package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	if err == nil && slices.Equal(current.Spec.CIDRs, ranges) {
		return nil
	}
	if err == nil {
		slog.Warn("--service-cidr differs from that of the last start: Services keep their addresses outside of the new ranges until they are made anew",
			"before", current.Spec.CIDRs, "now", ranges)
		err = cidrs.Delete(ctx, current.Name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
	}
	object := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: validation.DefaultServiceCIDR}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
	created, err := cidrs.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
	}
	created.Status.Conditions = []metav1.Condition{{
		Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Reason: "InUse",
		Message: "cluster IPs come from here", LastTransitionTime: metav1.Now(),
	}}
	if _, err := cidrs.UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of ServiceCIDR %s: %w", validation.DefaultServiceCIDR, err)
	}
	return nil
}
