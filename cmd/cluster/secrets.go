//go:build !agentonly

package cluster

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/apiserver"
)

func secretsCommand() *cobra.Command {
	var dataDir string
	var newKey, useNewKey bool
	c := &cobra.Command{Use: "secrets", Short: "Manage how Secrets are encrypted in the store", Args: cobra.NoArgs}
	rewrite := &cobra.Command{
		Use:   "rewrite",
		Short: "Write every Secret anew, encrypted with the first key of DATA-DIR/pki/secrets.keys",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if newKey {
				return addSecretsKey(dataDir, cmd.OutOrStdout())
			}
			config, err := adminConfig(dataDir)
			if err != nil {
				return err
			}
			if useNewKey {
				if err := apiserver.UseSecretsKey(cmd.Context(), dataDir, config); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), "Restart this server. When all servers write with the new key, run `fairway server secrets rewrite` on one.")
				return nil
			}
			n, err := apiserver.RewriteSecrets(cmd.Context(), config)
			fmt.Fprintln(cmd.OutOrStdout(), n, "Secrets written anew.")
			return err
		},
	}
	rewrite.Flags().StringVar(&dataDir, "data-dir", apiserver.DefaultConfig().DataDir, "the server's data directory")
	rewrite.Flags().BoolVar(&newKey, "new-key", false, "only make a new key, for the server to use after a restart; in a cluster, for all servers to read with first")
	rewrite.Flags().BoolVar(&useNewKey, "use-new-key", false, "in a cluster whose servers all have the new key: only have this one write with it after a restart")
	rewrite.MarkFlagsMutuallyExclusive("new-key", "use-new-key")
	c.AddCommand(rewrite)
	return c
}

func addSecretsKey(dataDir string, out io.Writer) error {
	clustered, err := apiserver.AddSecretsKey(dataDir)
	if err != nil {
		return err
	}
	file := apiserver.EncryptionKeys(dataDir)
	if clustered {
		fmt.Fprintf(out, "A new key is the last one in %s. Copy the file to all servers, restart them one after the other, then run on each `fairway server secrets rewrite --use-new-key`.\n", file)
		return nil
	}
	fmt.Fprintf(out, "A new key is in %s. Restart the server, then run `fairway server secrets rewrite`.\n", file)
	return nil
}
