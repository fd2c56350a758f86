package cmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/kube"
)

func upCommand() *cobra.Command {
	config := apiserver.DefaultConfig()
	flags := agentFlags{healthz: "127.0.0.1:10256", metrics: "127.0.0.1:10249", dns: true}
	var verbosity int
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: API server, controllers and the node's agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setLibraryLogs(verbosity); err != nil {
				return err
			}
			node, err := flags.config()
			if err != nil {
				return err
			}
			node.Compile.ServiceCIDRs = config.ServiceCIDRs
			node.Register = true
			if config.ClusterDNS, err = clusterDNS(flags.dnsAddress, config.ServiceCIDRs); err != nil {
				return err
			}
			if node.DNS = flags.dnsConfig(config.ClusterDNS); node.DNS != nil {
				node.DNS.WatchPods = true
			}
			return up(cmd.Context(), config, node, cmd.OutOrStdout())
		},
	}
	addServerFlags(c.Flags(), &config)
	addVerbosityFlag(c.Flags(), &verbosity)
	flags.addRunning(c.Flags())
	return c
}

// up serves the API and runs this machine's agent until ctx is done. The agent
// ends first, so that it sees no API that goes away.
func up(ctx context.Context, config apiserver.Config, node agent.Config, out io.Writer) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	servers, serving := errgroup.WithContext(serving)
	ready := make(chan *apiserver.Server, 1)
	servers.Go(func() error { return runServer(serving, config, out, ready) })

	agents, running := errgroup.WithContext(ctx)
	agents.Go(func() error { // the end of either is the end of both
		select {
		case <-running.Done():
			return nil
		case <-serving.Done():
			return fmt.Errorf("the API server ended: %w", context.Cause(serving))
		}
	})
	agents.Go(func() error {
		select {
		case <-running.Done():
			return nil
		case server := <-ready:
			node.API = kube.Tune(server.LoopbackConfig())
			return agent.Run(running, node)
		}
	})
	agentErr := agents.Wait()
	stop()
	if err := servers.Wait(); err != nil {
		return err // why the server ended says more than that it did
	}
	return agentErr
}
