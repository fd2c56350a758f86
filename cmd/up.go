//go:build !agentonly

package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/endpoint/publish"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/internal/ranges"
)

func upCommand() *cobra.Command {
	config := apiserver.DefaultConfig()
	flags := agentFlags{healthz: "127.0.0.1:10256", metrics: "127.0.0.1:10249", dns: true, announce: true, publish: agent.Publish{Folder: publish.DefaultFolder}}
	balancing := loadBalancerFlags{nodes: true}
	gateways := upGateways{serve: true, engine: engines.Native, processes: processesPerGateway}
	var verbosity int
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: API server, controllers and the node's agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setLibraryLogs(verbosity); err != nil {
				return err
			}
			if err := gateways.check(); err != nil {
				return err
			}
			node, err := flags.config()
			if err != nil {
				return err
			}
			if err := prepareServer(cmd.Context(), &config, flags.dnsAddress); err != nil {
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
			calm := &calmStart{out: cmd.OutOrStdout(), level: &flags.level, verbose: flags.verbose}
			return up(cmd.Context(), config, balancing, node, gateways, calm.begin())
		},
	}
	addServerFlags(c.Flags(), &config)
	balancing.add(c.Flags())
	addVerbosityFlag(c.Flags(), &verbosity)
	flags.addRunning(c.Flags())
	gateways.add(c.Flags())
	return c
}

// up serves the API and runs this machine's agent until ctx is done. The agent
// ends first, so that it sees no API that goes away. A server that ends by
// itself is started again; agent and DNS go on meanwhile.
func up(ctx context.Context, config apiserver.Config, balancing loadBalancerFlags, node agent.Config, gateways upGateways, calm *calmStart) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	own := newOwnServer()
	config.AgentSocket = func(name string) string { // the rest are machines that have joined
		if name == node.NodeName {
			return node.Socket
		}
		return ""
	}
	node.Identity = own.identity(node.NodeName)
	server := make(chan error, 1)
	go func() { server <- own.keep(serving, config, balancing, calm.out) }()

	node.Started = calm.started
	context.AfterFunc(ctx, calm.stopping)
	select {
	case err := <-server: // it didn't even start
		return err
	case <-own.ready:
	}
	node.API = own.config()
	group, running := errgroup.WithContext(ctx) // the end of either is the end of both
	if gateways.serve {
		group.Go(func() error { return gateways.run(running, own, node) })
	}
	group.Go(func() error { return agent.Run(running, node) })
	agentErr := group.Wait()
	stop()
	return errors.Join(agentErr, <-server)
}
