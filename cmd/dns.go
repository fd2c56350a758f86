package cmd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/dns/node"
	"github.com/fairway-net/fairway/kube"
)

func dnsCommand() *cobra.Command {
	var kubeconfig string
	var listen []string
	var flags dnsFlags
	c := &cobra.Command{
		Use:   "dns",
		Short: "Serve cluster DNS alone (the agent serves it too)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := kube.Config(kubeconfig)
			if err != nil {
				return err
			}
			config := dns.Config{API: api, Options: flags.Options, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			if config.Listen, err = endpoints("listen", listen); err != nil {
				return err
			}
			return dns.Run(cmd.Context(), config)
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; default the credentials of the pod that this runs in")
	c.Flags().StringSliceVar(&listen, "listen", []string{"[::]:53"}, "addresses and ports to answer at, over UDP and TCP")
	flags.add(c.Flags())
	return c
}

// dnsFlags are the flags of DNS, served alone or by an agent.
type dnsFlags struct{ dns.Options }

func (f *dnsFlags) add(flags *pflag.FlagSet) {
	f.Options = dns.DefaultOptions()
	flags.StringVar(&f.Zone, "cluster-domain", f.Zone, "the domain of the cluster's names")
	flags.StringVar(&f.Outside, "dns-outside-zone", f.Outside, "a zone of your own, such as example.lan, with the names of load balancer addresses")
	flags.DurationVar(&f.TTL, "dns-ttl", f.TTL, "how long clients may keep the cluster's records")
	flags.StringVar(&f.Corefile, "corefile", f.Corefile, "your own Corefile, with the plugin fairway for the cluster's names")
	flags.StringVar(&f.ResolvConf, "resolv-conf", f.ResolvConf, `file with the upstream servers for all other names; "" for none`)
	flags.StringSliceVar(&f.Upstreams, "dns-upstream", nil, "upstream servers, instead of those in --resolv-conf")
	flags.StringVar(&f.Metrics, "dns-metrics-bind-address", f.Metrics, `host:port of CoreDNS' metrics; "" serves none`)
}

// endpoints reads the values of a flag that takes addresses with ports.
func endpoints(flag string, values []string) ([]netip.AddrPort, error) {
	var list []netip.AddrPort
	for _, value := range values {
		a, err := netip.ParseAddrPort(value)
		if err != nil {
			return nil, fmt.Errorf("--%s: %q is not an address with a port such as 192.0.2.1:53", flag, value)
		}
		list = append(list, a)
	}
	return list, nil
}

// addClusterDNSFlag adds the flag that says where cluster DNS is.
func addClusterDNSFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, "cluster-dns", "", "address of the Service kube-system/kube-dns; default the tenth of the first --service-cidr")
}

// clusterDNS is the address that the flag gives or the range implies, if any.
func clusterDNS(text string, cidrs []netip.Prefix) (netip.Addr, error) {
	if text != "" {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return a, fmt.Errorf("--cluster-dns: %q is not an IP address", text)
		}
		return a.Unmap(), nil
	}
	if len(cidrs) == 0 {
		return netip.Addr{}, nil
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

// dnsConfig is how an agent with these flags serves DNS; nil if it doesn't.
func (f *agentFlags) dnsConfig(address netip.Addr) *node.Options {
	if !f.dns {
		return nil
	}
	return &node.Options{Options: f.dnsOptions.Options, Addresses: []netip.Addr{address}, Port: f.dnsPort, Clients: f.dnsClients}
}
