//go:build !agentonly

package cluster

import (
	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/logs"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/server"
)

func Up() *cobra.Command {
	role := config.NewUp()
	c := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: API server, controllers and the node's agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logs.SetLibraries(role.Verbosity); err != nil {
				return err
			}
			serving, node, err := role.Config(cmd.Context(), cmd.Flags())
			if err != nil {
				return err
			}
			serving.Join, serving.Out = joinLine(cmd.OutOrStdout()), cmd.OutOrStdout()
			start := &server.Start{Out: cmd.OutOrStdout(), Level: &role.Agent.Level, Verbose: role.Agent.Verbose}
			return server.Up(cmd.Context(), serving, node, role.Gateways, start)
		},
	}
	role.Add(c.Flags())
	return c
}
