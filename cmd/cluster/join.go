//go:build !agentonly

package cluster

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/fairway-net/fairway/cmd/logs"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/agent/member"
	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/kube/credentials"
	"github.com/fairway-net/fairway/kube/join"
)

func Join() *cobra.Command {
	role := config.NewJoin()
	options := join.Options{Version: apiserver.KubernetesVersion}
	var systemd bool
	c := &cobra.Command{
		Use:   "join [https://ADDRESS:PORT --token-file FILE]",
		Short: "Make this machine a node of a cluster, and run its agent",
		Example: `  sudo fairway join https://192.0.2.10:6443                            # asks for the token
  echo abcdef.… | sudo fairway join https://192.0.2.10:6443 --token-file -
  sudo fairway join https://192.0.2.10:6443 --token-file /root/token --systemd   # keeps running
  sudo fairway join                                                    # runs again as what it is`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := role.Config()
			if err != nil {
				return err
			}
			slog.SetDefault(node.Log) // the libraries log where the agent does, and only errors
			if err := logs.SetLibraries(0); err != nil {
				return err
			}
			if err := becomeMember(cmd.Context(), &options, args, node.NodeName); err != nil {
				return err
			}
			if systemd {
				return installAgentUnit(cmd, options.Dir)
			}
			defer sayStopping(cmd.Context(), cmd.OutOrStdout(), "agent and DNS end; the kernel goes on forwarding to the endpoints known now. To remove its rules: fairway leave")()
			var beside member.Beside
			if role.Gateways.Serve {
				beside = role.Gateways.RunJoined
			}
			return member.Run(cmd.Context(), options.Dir, &role.Agent, node, beside)
		},
	}
	role.Add(c.Flags())
	config.AddToken(c.Flags(), &options.Token, "fairway token create")
	c.Flags().StringVar(&options.Dir, "data-dir", credentials.NodeDir, "where this machine's certificate is kept")
	c.Flags().BoolVar(&systemd, "systemd", false, "run the agent as a systemd unit, now and after each boot")
	return c
}

// becomeMember joins, or makes sure that the machine has joined before.
func becomeMember(ctx context.Context, o *join.Options, args []string, node string) error {
	if len(args) == 0 {
		_, err := join.Member(o.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("this machine hasn't joined a cluster: give the server and --token-file, as `fairway token create` prints them on a server")
		}
		return err
	}
	if o.Token == "" {
		var err error
		if o.Token, err = join.CredentialToken(); err == nil && o.Token == "" && join.IsTerminal(os.Stdin) {
			o.Token, err = join.ReadTokenFile("-", os.Stdin, os.Stderr)
		}
		if err != nil {
			return err
		}
	}
	if o.Token == "" {
		return errors.New("--token-file: not given; `fairway token create` on a server makes a token")
	}
	o.Server, o.Node = strings.TrimSuffix(args[0], "/"), node
	return join.Join(ctx, *o)
}
