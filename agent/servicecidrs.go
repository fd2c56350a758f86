package agent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/lastknown"
)

// cidrsPause is between two attempts to find out whether ServiceCIDRs can be read, and
// cidrsTimeout how long the first table waits for the answer. Until it is known, packets
// to unknown addresses of the ranges leave the node.
const (
	cidrsPause   = time.Second
	cidrsTimeout = 10 * time.Second
)

// watchServiceCIDRs follows the ranges of cluster IPs that the API has (KEP-1880,
// Kubernetes 1.33). Where there are none, or this agent may not read them, the
// ranges of --service-cidr are all.
func (a *Agent) watchServiceCIDRs(ctx context.Context) {
	complete := func() { a.state.complete(partServiceCIDRs) }
	enough := time.AfterFunc(cidrsTimeout, complete)
	defer enough.Stop()
	sink := lastknown.Keep(ctx, a.known, "servicecidrs", kube.Sink[*networkingv1.ServiceCIDR]{
		Set:    func(c *networkingv1.ServiceCIDR) { a.state.setServiceCIDR(c.Name, prefixesOf(c.Spec.CIDRs)) },
		Delete: func(n types.NamespacedName) { a.state.setServiceCIDR(n.Name, nil) },
		Synced: complete,
	}, func() *networkingv1.ServiceCIDR { return &networkingv1.ServiceCIDR{} }, a.config.Log)
	for {
		_, err := a.client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil {
			break
		}
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			a.config.Log.Debug("the ranges of cluster IPs are those of --service-cidr alone", "reason", err)
			complete()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(cidrsPause):
		}
	}
	kube.Watch(ctx, kube.Source{Client: a.client.NetworkingV1().RESTClient(), Resource: "servicecidrs"}, sink)
}

// prefixesOf reads CIDRs, which the API has validated.
func prefixesOf(texts []string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, p.Masked())
		}
	}
	return list
}

// setServiceCIDR takes in a ServiceCIDR's ranges; none if it is gone.
func (s *state) setServiceCIDR(name string, ranges []netip.Prefix) {
	s.update(func(c *compile.Compiler) {
		if s.serviceCIDRs[name] = ranges; ranges == nil {
			delete(s.serviceCIDRs, name)
		}
		if all := s.allServiceCIDRs(); !slices.Equal(all, s.config.ServiceCIDRs) {
			s.config.ServiceCIDRs = all
			c.SetConfig(s.config)
		}
	})
}

// allServiceCIDRs are the configured ranges and those of the API.
func (s *state) allServiceCIDRs() []netip.Prefix {
	all := slices.Clone(s.configuredCIDRs)
	for _, ranges := range s.serviceCIDRs {
		all = append(all, ranges...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
