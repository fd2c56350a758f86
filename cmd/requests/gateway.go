package requests

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/ingress/gateway"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/balance"
)

func Gateway() *cobra.Command {
	var role config.Gateway
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Serve Gateways and Ingresses on this node: HTTP, gRPC, TLS",
		Long: `Serve Gateways and Ingresses on this node: HTTP, gRPC, TLS.

A second one that is started takes over from the first, without a connection being
refused: the listening sockets are handed to it once it knows all routes. SIGUSR2
starts the program anew, as it is on disk then, for that purpose.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			serving, err := role.Config()
			if err != nil {
				return err
			}
			if serving.API, err = kube.Config(role.Kubeconfig); err != nil {
				return err
			}
			ctx := cmd.Context()
			stop, err := balance.Begin(ctx, serving.API, role.Kubeconfig, serving.Logger)
			if err != nil {
				return err
			}
			defer stop()
			serving.Lean = true
			if role.Only != "" {
				signal.Ignore(syscall.SIGUSR2) // it is for the one that has started this
				if ctx, err = serving.Member(ctx, role.Only); err != nil {
					return err
				}
				return gateway.Run(ctx, serving)
			}
			upgrade := make(chan os.Signal, 1)
			signal.Notify(upgrade, syscall.SIGUSR2)
			defer signal.Stop(upgrade)
			serving.Upgrade = upgrade
			return gateway.Run(ctx, serving)
		},
	}
	role.Add(c.Flags())
	c.AddCommand(gatewayControllerCommand())
	return c
}
