package config

import (
	"context"
	"errors"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/config/kubeproxy"
	"github.com/fairway-net/fairway/dns/node"
)

// besideFile are the flags of Fairway that kube-proxy has too and that, as with
// it, have no effect beside a configuration file.
var besideFile = []string{
	"kubeconfig", "cluster-cidr", "masquerade-all", "nodeport-addresses", "healthz-bind-address", "metrics-bind-address", "sync-period",
}

// Load is what the flags that were given, and the file that they may name, say. Changes
// of the file come to the agent until ctx is done.
func (a *Agent) Load(ctx context.Context, given *pflag.FlagSet) (agent.Config, error) {
	source := &kubeproxy.Source{Flags: &a.Proxy, Kubeconfig: a.Kubeconfig, Verbose: a.Verbose, Verbosity: &a.Level}
	warnings := a.Proxy.Warnings(given)
	if given.Changed("node-name") {
		source.NodeName = a.NodeName
	}
	if given.Changed("mode") {
		source.Mode = a.Mode
	}
	if a.Proxy.File != "" {
		for _, name := range besideFile {
			if given.Changed(name) {
				warnings = append(warnings, "--"+name+": has no effect beside --config")
			}
		}
		// The file says, or leaves to kube-proxy's defaults, what these would.
		a.ClusterCIDRs, a.NodePorts, a.MasqueradeAll = nil, compile.NodePortAddresses{}, false
	}
	base, err := a.Config()
	if err != nil {
		return base, err
	}
	base.ZPages.Flags = flagValues(given)
	for _, w := range warnings {
		base.Log.Warn("command line", "flag", w)
	}
	if a.Proxy.WriteTo != "" {
		return base, a.Proxy.Write(base, source.NodeName)
	}
	// What the file doesn't know is the same with every change of it.
	base.TuneGC = true
	if base.DNS, err = a.ownDNS(base.Compile.ServiceCIDRs); err != nil {
		return base, err
	}
	return source.Agent(ctx, base)
}

// ownDNS is how an agent on its own serves DNS; nil if it doesn't.
func (a *Agent) ownDNS(cidrs []netip.Prefix) (*node.Options, error) {
	address, err := ClusterDNS(a.ClusterDNS, cidrs)
	if err != nil {
		return nil, err
	}
	if a.DNS && !address.IsValid() {
		return nil, errors.New("--cluster-dns: not given, and there is no --service-cidr to take the tenth address of")
	}
	dns := a.ServeDNS(address)
	if dns != nil {
		dns.WatchPods = a.WatchPods
	}
	return dns, nil
}

// flagValues are the values of all flags, given or not.
func flagValues(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	return values
}
