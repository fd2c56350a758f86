//go:build !agentonly

package node

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/controller/addresses"
)

func addRotateKey(c *cobra.Command) { c.AddCommand(rotateKeyCommand()) }

func rotateKeyCommand() *cobra.Command {
	var kubeconfig, namespace string
	var now bool
	c := &cobra.Command{
		Use:   "rotate-key",
		Short: "Replace the key that nodes sign their adverts with; no address moves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := adminClients(kubeconfig)
			if err != nil {
				return err
			}
			if err := addresses.RotateKey(cmd.Context(), client, namespace, !now); err != nil {
				return err
			}
			if now {
				fmt.Fprintln(cmd.OutOrStdout(), "adverts have another key; agents read it within ten seconds, and forget the former one five seconds later")
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout(), "adverts have another key; the former one is good until the address controller forgets it, half a minute from now")
			return nil
		},
	}
	c.Flags().BoolVar(&now, "now", false, "forget the former key at once: somebody knows it who mustn't")
	config.AddAnnounceNamespace(c.Flags(), "namespace", &namespace)
	addKubeconfigFlag(c, &kubeconfig)
	return c
}
