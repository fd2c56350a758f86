package cmd

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/internal/version"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "fairway %s %s %s\n", version.Version, version.Revision(), runtime.Version())
			return err
		},
	}
}
