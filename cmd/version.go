package cmd

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/internal/version"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "fairway %s %s %s\n", version.Version, revision(), runtime.Version())
			return err
		},
	}
}

// revision is the commit that the binary was built from, where Go recorded it.
func revision() string { return cmp.Or(setting("vcs.revision"), "unknown") }

// setting is something that Go recorded about the build; "" if it didn't.
func setting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
