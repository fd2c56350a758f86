package server

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/internal/servicerange"
)

// Settle is what a server is asked to be, of what its cluster may have decided before.
type Settle struct {
	RangesGiven   bool       // the ranges of cluster IPs are the user's
	DNS           netip.Addr // that the user wants, if valid
	LoadBalancers []netip.Addr
	// ImpliedDNS is where DNS is without one, by the ranges of cluster IPs.
	ImpliedDNS func(given netip.Addr, cidrs []netip.Prefix) (netip.Addr, error)
}

// Prepare settles what a server needs to know before it starts: where it
// is one of several, the cluster has decided on ranges and on DNS.
func (s Settle) Prepare(ctx context.Context, config *apiserver.Config) error {
	machine, err := servicerange.Uplink(cmp.Or(config.AdvertiseAddress, config.BindAddress))
	if err != nil {
		return err
	}
	if err := config.SettleServiceCIDRs(s.RangesGiven, apiserver.Families{LoadBalancers: s.LoadBalancers, Machine: machine}); err != nil {
		return err
	}
	wanted, err := s.ImpliedDNS(s.DNS, config.ServiceCIDRs)
	if err != nil {
		return err
	}
	config.ClusterDNS = wanted
	if err := apiserver.Prepare(ctx, config); err != nil {
		return err
	}
	if s.DNS.IsValid() && config.ClusterDNS != wanted {
		return fmt.Errorf("--cluster-dns: the cluster's is %s; leave it out", config.ClusterDNS)
	}
	return nil
}
