package config

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/dns"
)

// DNS is the configuration of the cluster's names, served alone or by an agent.
type DNS struct{ dns.Options }

// Add adds its flags.
func (d *DNS) Add(flags *pflag.FlagSet) {
	d.Options = dns.DefaultOptions()
	flags.StringVar(&d.Zone, "cluster-domain", d.Zone, "the domain of the cluster's names")
	flags.StringVar(&d.Outside, "dns-outside-zone", d.Outside, "a zone of your own, such as example.lan, with the names of load balancer addresses")
	flags.DurationVar(&d.TTL, "dns-ttl", d.TTL, "how long clients may keep the cluster's records")
	flags.StringVar(&d.Corefile, "corefile", d.Corefile, "your own Corefile, with the plugin fairway for the cluster's names")
	flags.StringVar(&d.ResolvConf, "resolv-conf", d.ResolvConf, `file with the upstream servers for all other names; "" for none`)
	flags.StringSliceVar(&d.Upstreams, "dns-upstream", nil, "upstream servers, instead of those in --resolv-conf")
	flags.StringVar(&d.Metrics, "dns-metrics-bind-address", d.Metrics, `host:port of CoreDNS' metrics; "" serves none`)
}

// AddClusterDNS adds the flag that says where cluster DNS is.
func AddClusterDNS(flags *pflag.FlagSet, address *netip.Addr) {
	flags.Var((*Address)(address), "cluster-dns", "address of the Service kube-system/kube-dns; default the tenth of the first --service-cidr")
}

// ClusterDNS is the address that is given or that the ranges of cluster IPs imply, if any.
func ClusterDNS(given netip.Addr, cidrs []netip.Prefix) (netip.Addr, error) {
	if given.IsValid() || len(cidrs) == 0 {
		return given.Unmap(), nil
	}
	a := cidrs[0].Addr()
	for range 10 {
		a = a.Next()
	}
	if !cidrs[0].Contains(a) {
		return netip.Addr{}, fmt.Errorf("--service-cidr: %s has no tenth address for DNS; give --cluster-dns", cidrs[0])
	}
	return a, nil
}
