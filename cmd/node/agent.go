package node

import (
	"context"
	"fmt"

	"github.com/fairway-net/fairway/agent/cleanup"
	"github.com/fairway-net/fairway/cmd/logs"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/version"
	"github.com/fairway-net/fairway/kube/balance"
)

func Agent() *cobra.Command {
	role := config.NewAgent()
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run one node: watch the API and program the kernel; replaces kube-proxy, with its flags and configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case role.Proxy.Version:
				fmt.Fprintln(cmd.OutOrStdout(), "Fairway", version.Version)
				return nil
			case role.Proxy.Cleanup:
				job := cleanup.Job{Options: kernel.Options{StateDir: role.StateDir, Cgroup: role.Cgroup}, KubeProxys: true, Out: cmd.OutOrStdout()}
				return job.Run(cmd.Context())
			}
			node, err := role.Load(cmd.Context(), cmd.Flags())
			if err != nil || role.Proxy.WriteTo != "" {
				return err
			}
			logs.SetAgent(node.Log)
			if role.Proxy.InitOnly {
				return agent.Init(cmd.Context(), node)
			}
			return runAgent(cmd.Context(), node, role.Kubeconfig)
		},
	}
	role.Add(c.Flags())
	return c
}

// runAgent runs an agent until ctx is done. Where a server or a machine that has
// joined keeps the file of servers beside the kubeconfig, any of those will do.
func runAgent(ctx context.Context, config agent.Config, kubeconfig string) error {
	if kubeconfig == "" || config.API == nil {
		return agent.Run(ctx, config)
	}
	stop, err := balance.Begin(ctx, config.API, kubeconfig, config.Log)
	if err != nil {
		return err
	}
	defer stop()
	return agent.Run(ctx, config)
}
