package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/internal/kernel"
)

func cleanupCommand() *cobra.Command {
	var options kernel.Options
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that any mode, or kube-proxy, left on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var failed []error
			for _, kind := range dataplane.Kinds() {
				plane, err := kind.New(options)
				if kernel.IsMissing(err) {
					// A mode that can't run here can have left nothing.
					fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing to remove: %v\n", kind.Name, err)
					continue
				}
				if err == nil {
					err = plane.Remove(cmd.Context())
				}
				if err != nil {
					failed = append(failed, fmt.Errorf("clean up %s mode: %w", kind.Name, err))
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: clean\n", kind.Name)
			}
			if err := dns.Cleanup(); err != nil {
				failed = append(failed, fmt.Errorf("clean up DNS: %w", err))
			}
			return errors.Join(failed...)
		},
	}
	c.Flags().StringVar(&options.StateDir, "state-dir", "/run/fairway", "the agent's --state-dir")
	return c
}
