//go:build !agentonly

package cluster

import (
	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/logs"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/server"
)

func Server() *cobra.Command {
	role := config.NewServer()
	c := &cobra.Command{
		Use:   "server",
		Short: "Serve the API, with its storage, and run the controllers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logs.SetLibraries(role.Verbosity); err != nil {
				return err
			}
			serving, err := role.Config(cmd.Context(), cmd.Flags())
			if err != nil {
				return err
			}
			serving.Join, serving.Out = joinLine(cmd.OutOrStdout()), cmd.OutOrStdout()
			defer sayStopping(cmd.Context(), cmd.OutOrStdout(), "the API ends; agents and DNS go on with what they know, and the kernel goes on forwarding")()
			return server.Run(cmd.Context(), serving, nil)
		},
	}
	role.Add(c.Flags())
	c.AddCommand(snapshotCommand(), secretsCommand(), membersCommand())
	return c
}
