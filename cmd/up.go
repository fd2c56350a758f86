//go:build !agentonly

package cmd

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/internal/ranges"
	"github.com/fairway-net/fairway/server"
)

func upCommand() *cobra.Command {
	config := apiserver.DefaultConfig()
	flags := agentFlags{healthz: "127.0.0.1:10256", metrics: "127.0.0.1:10249", dns: true, announce: true, publish: agent.Publish{Folder: publish.DefaultFolder}}
	balancing := loadBalancerFlags{nodes: true}
	gateways := server.Gateways{Serve: true, Engine: engines.Native}
	processes := processesPerGateway
	var verbosity int
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: API server, controllers and the node's agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setLibraryLogs(verbosity); err != nil {
				return err
			}
			if err := checkGateways(&gateways, processes); err != nil {
				return err
			}
			node, err := flags.config()
			if err != nil {
				return err
			}
			if err := prepareServer(cmd.Context(), &config, &balancing, cmd.Flags().Changed(serviceCIDRFlag), flags.dnsAddress); err != nil {
				return err
			}
			node.Compile.ServiceCIDRs = config.ServiceCIDRs
			node.Register = true
			flags.servePlainMachine(&node)
			if !config.BindAddress.IsLoopback() && !cmd.Flags().Changed(agentAddressFlag) { // other servers may come
				node.AgentAddress = agentPort
			}
			if node.DNS = flags.dnsConfig(config.ClusterDNS); node.DNS != nil {
				node.DNS.WatchPods = true
			}
			for _, cidr := range node.Compile.Pods.Prefixes {
				if err := ranges.CheckUplink("--cluster-cidr", cidr); err != nil {
					return err
				}
			}
			serving, err := serverConfig(config, &balancing, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			start := &server.Start{Out: cmd.OutOrStdout(), Level: &flags.level, Verbose: flags.verbose}
			return server.Up(cmd.Context(), serving, node, gateways, start)
		},
	}
	addServerFlags(c.Flags(), &config)
	balancing.add(c.Flags())
	addVerbosityFlag(c.Flags(), &verbosity)
	flags.addRunning(c.Flags())
	addGateways(c.Flags(), &gateways, &processes)
	return c
}

// addGateways adds the flags that say how Gateways are served beside the API server.
func addGateways(flags *pflag.FlagSet, g *server.Gateways, processes *string) {
	flags.BoolVar(&g.Serve, "gateway", g.Serve, "serve Gateways and Ingresses on this machine")
	flags.StringVar(&g.Engine, "gateway-engine", g.Engine, "what serves them: native, in this program, or haproxy, which must be installed (2.6 or later)")
	flags.StringVar(processes, "gateway-processes", *processes, "gateway: each Gateway has a process of its own, and all Ingresses have one, so that none can bring down another or the API server; one: this process serves all")
}

func checkGateways(g *server.Gateways, processes string) error {
	if err := engines.Check(g.Engine); err != nil {
		return fmt.Errorf("--gateway-engine: %w", err)
	}
	if processes != processesPerGateway && processes != oneProcess {
		return fmt.Errorf("--gateway-processes %q: must be %s or %s", processes, processesPerGateway, oneProcess)
	}
	g.OneProcess = processes == oneProcess
	return nil
}
