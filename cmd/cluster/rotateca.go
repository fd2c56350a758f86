//go:build !agentonly

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/apiserver/pki"
)

func rotateAuthorityCommand() *cobra.Command {
	kubeconfig := apiserver.AdminKubeconfig(apiserver.DefaultConfig().DataDir)
	var force bool
	c := &cobra.Command{
		Use:   "rotate-ca AUTHORITY STEP",
		Short: "Replace a certificate authority or the key of ServiceAccounts' tokens, while everything runs",
		Long: `Replace a certificate authority, or the key of ServiceAccounts' tokens, while everything runs.

AUTHORITY is client-ca (vouches for administrators and machines), ca (for API servers),
etcd-ca (for servers to each other) or sa (the key of ServiceAccounts' tokens). STEP is one of:

  trust    makes a new one. Both are trusted, and the old one signs.
  use      has the new one sign. Both are trusted.
  finish   forgets the old one.

Each step reaches the directories of all servers by itself. Restart the servers one after the
other before the next step, which is refused until then. A step may be taken again: one that
was taken changes nothing. It also says which servers have to be restarted.

After the restarts of use, servers, machines, Gateways' processes and Secrets with tokens get
new certificates and tokens by themselves, machines within ten minutes. finish is refused while
clients come whose credential only the old authority vouches for.`,
		Example: `  fairway certs rotate-ca client-ca trust
  systemctl restart fairway          # on each server, one after the other
  fairway certs rotate-ca client-ca use
  systemctl restart fairway
  fairway certs rotate-ca client-ca finish`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			known := [][]string{pki.Rotated, apiserver.Steps}
			return slices.Concat(known[min(len(args), 2):min(len(args)+1, 2)]...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			_, client, err := adminClient(kubeconfig)
			if err != nil {
				return err
			}
			wanted := apiserver.RotationStep{Authority: args[0], Step: args[1], Force: force}
			body, err := json.Marshal(wanted)
			if err != nil {
				return fmt.Errorf("write request: %w", err)
			}
			answer := client.CoreV1().RESTClient().Post().AbsPath(apiserver.AuthoritiesPath).Body(body).Do(cmd.Context())
			if err := answer.Error(); err != nil {
				return fmt.Errorf("replace %s: %w", wanted.Authority, err)
			}
			data, err := answer.Raw()
			if err != nil {
				return fmt.Errorf("replace %s: %w", wanted.Authority, err)
			}
			var state apiserver.RotationState
			if err := json.Unmarshal(data, &state); err != nil {
				return fmt.Errorf("replace %s: read answer: %w", wanted.Authority, err)
			}
			sayRotation(cmd.OutOrStdout(), wanted, state)
			return nil
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "kubeconfig of an administrator")
	c.Flags().BoolVar(&force, "force", false, "finish also if clients are locked out that have no credential of the new authority")
	return c
}

// sayRotation says how far a replacement is, and what to do next.
func sayRotation(out io.Writer, taken apiserver.RotationStep, state apiserver.RotationState) {
	fmt.Fprintf(out, "%s: %s\n", taken.Authority, map[pki.Phase]string{
		pki.Steady: "the old one is forgotten", pki.Trusted: string(pki.Trusted), pki.Used: string(pki.Used),
	}[state.Phase])
	next := ""
	if i := slices.Index(apiserver.Steps, taken.Step); i+1 < len(apiserver.Steps) {
		next = fmt.Sprintf("fairway certs rotate-ca %s %s", taken.Authority, apiserver.Steps[i+1])
	}
	switch {
	case len(state.Restart) > 0 && next != "":
		fmt.Fprintf(out, "Restart these servers, one after the other: %s. Then run: %s\n", strings.Join(state.Restart, ", "), next)
	case len(state.Restart) > 0:
		fmt.Fprintf(out, "Restart these servers, one after the other: %s\n", strings.Join(state.Restart, ", "))
	case next != "":
		fmt.Fprintf(out, "All servers have taken this step. Run: %s\n", next)
	}
}
