package cmd

import (
	"errors"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dns/node"
)

// besideFile are the flags of Fairway that kube-proxy has too and that, as with
// it, have no effect beside a configuration file.
var besideFile = []string{
	"kubeconfig", "cluster-cidr", "masquerade-all", "nodeport-addresses", "healthz-bind-address", "metrics-bind-address", "sync-period",
}

// agentConfig is what the flags, and the file that they may name, say.
func (f *agentFlags) agentConfig(cmd *cobra.Command, proxy *config.Flags, kubeconfig string) (agent.Config, error) {
	given := cmd.Flags()
	source := &config.Source{Flags: proxy, Kubeconfig: kubeconfig, Verbose: f.verbose, Verbosity: &f.level}
	warnings := proxy.Warnings(given)
	if given.Changed("node-name") {
		source.NodeName = f.nodeName
	}
	if given.Changed("mode") {
		source.Mode = f.mode
	}
	if proxy.File != "" {
		for _, name := range besideFile {
			if given.Changed(name) {
				warnings = append(warnings, "--"+name+": has no effect beside --config")
			}
		}
		// The file says, or leaves to kube-proxy's defaults, what these would.
		f.clusterCIDRs, f.nodePortAddresses, f.masqueradeAll = nil, nil, false
	}
	base, err := f.config()
	if err != nil {
		return base, err
	}
	base.ZPages.Flags = flagValues(given)
	for _, w := range warnings {
		base.Log.Warn("command line", "flag", w)
	}
	if proxy.WriteTo != "" {
		return base, proxy.Write(base, source.NodeName)
	}
	// What the file doesn't know is the same with every change of it.
	base.TuneGC = true
	if base.DNS, err = f.ownDNS(base.Compile.ServiceCIDRs); err != nil {
		return base, err
	}
	return source.Agent(cmd.Context(), base)
}

// ownDNS is how an agent of this command serves DNS; nil if it doesn't.
func (f *agentFlags) ownDNS(cidrs []netip.Prefix) (*node.Options, error) {
	address, err := clusterDNS(f.dnsAddress, cidrs)
	if err != nil {
		return nil, err
	}
	if f.dns && !address.IsValid() {
		return nil, errors.New("--cluster-dns: not given, and there is no --service-cidr to take the tenth address of")
	}
	dns := f.dnsConfig(address)
	if dns != nil {
		dns.WatchPods = f.watchPods
	}
	return dns, nil
}

// flagValues are the values of all flags, given or not.
func flagValues(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	return values
}
