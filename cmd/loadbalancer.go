package cmd

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/controller/addresses"
	"github.com/fairway-net/fairway/controller/gateway"
	"github.com/fairway-net/fairway/internal/iprange"
)

// loadBalancerFlags say where Services of type LoadBalancer get their addresses.
type loadBalancerFlags struct {
	acme   acmeFlags
	ranges []string
	class  string
	// nodes has Gateways answer at the addresses of nodes, where there is no range.
	nodes bool
}

// gateways says how Gateways get their addresses.
func (f *loadBalancerFlags) gateways() (gateway.Options, error) {
	o := gateway.Options{Classes: true, NodeAddresses: f.nodes && len(f.ranges) == 0}
	return o, f.acme.apply(&o)
}

func (f *loadBalancerFlags) add(flags *pflag.FlagSet) {
	f.acme.add(flags)
	flags.Var((*rangesValue)(&f.ranges), "load-balancer-range", "addresses for Services of type LoadBalancer, such as 10.77.0.100-10.77.0.110 or a CIDR, comma separated or repeated; they become a pool announced by all nodes")
	f.addClass(flags)
}

func (f *loadBalancerFlags) addClass(flags *pflag.FlagSet) {
	flags.StringVar(&f.class, "lb-class", "", "give addresses only to Services of this loadBalancerClass; \"\" means those without a class")
}

func (f *loadBalancerFlags) options(serviceCIDRs []netip.Prefix) addresses.Options {
	return addresses.Options{Ranges: f.ranges, Class: f.class, ServiceCIDRs: serviceCIDRs, MakeNamespace: true}
}

// firsts are the first addresses of the ranges.
func (f *loadBalancerFlags) firsts() (list []netip.Addr) {
	for _, text := range f.ranges {
		if r, err := iprange.Parse(text); err == nil { // Set has refused others
			list = append(list, r.From)
		}
	}
	return list
}

// rangesValue is a flag that takes ranges of addresses.
type rangesValue []string

func (v *rangesValue) String() string { return strings.Join(*v, ",") }

func (v *rangesValue) Set(s string) error {
	for text := range strings.SplitSeq(s, ",") {
		if _, err := iprange.Parse(text); err != nil {
			return err
		}
		*v = append(*v, strings.TrimSpace(text))
	}
	return nil
}

func (v *rangesValue) Type() string { return "ranges" }

// cidrsValue is a flag that takes ranges, comma separated or repeated. The
// first use replaces the default.
type cidrsValue struct {
	list *[]netip.Prefix
	set  bool
}

func (v *cidrsValue) String() string {
	if v.list == nil {
		return ""
	}
	names := make([]string, len(*v.list))
	for i, p := range *v.list {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

func (v *cidrsValue) Set(s string) error {
	if !v.set {
		*v.list, v.set = nil, true
	}
	for value := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("%q is not a CIDR such as 10.96.0.0/16", value)
		}
		if p != p.Masked() {
			return fmt.Errorf("%s is an address, not a range: the range of that length is %s", value, p.Masked())
		}
		*v.list = append(*v.list, p)
	}
	return nil
}

func (v *cidrsValue) Type() string { return "cidrs" }
