package node

import (
	"log/slog"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dns"
	"github.com/fairway-net/fairway/kube"
)

func DNS() *cobra.Command {
	var kubeconfig string
	listen := []netip.AddrPort{netip.MustParseAddrPort("[::]:53")}
	var served config.DNS
	c := &cobra.Command{
		Use:   "dns",
		Short: "Serve cluster DNS alone (the agent serves it too)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := kube.Config(kubeconfig)
			if err != nil {
				return err
			}
			serving := dns.Config{API: api, Options: served.Options, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			serving.Listen = listen
			return dns.Run(cmd.Context(), serving)
		},
	}
	config.AddKubeconfig(c.Flags(), &kubeconfig)
	c.Flags().Var(&config.Listeners{List: &listen}, "listen", "addresses and ports to answer at, over UDP and TCP")
	served.Add(c.Flags())
	return c
}
