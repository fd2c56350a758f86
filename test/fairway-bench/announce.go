package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/test/bench"
)

// announceCommand measures changes of who announces an address.
func announceCommand(common *common) *cobra.Command {
	o := bench.AnnounceOptions{
		Modes: []string{"nftables", "ebpf"}, Router: lab.RouterFRR, Connections: 5000, Repetitions: 20, Addresses: 10_000,
		Section: "announcing", Version: version,
	}
	c := &cobra.Command{
		Use:   "announce",
		Short: "Measure what clients notice of changes of who announces an address",
		Long: "Measures in a lab of its own, with a router of FRR or bird, connections that ask and are answered all the time,\n" +
			"new connections, and a thousand datagrams a second, from the client outside. The events:\n" + bench.AnnounceEvents() +
			"The ways: " + strings.Join(bench.AnnounceWays, ", ") + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Fairway, err = common.program(); err != nil {
				return err
			}
			o.Stdout = cmd.OutOrStdout()
			o.Log = common.log()
			return bench.Announce(cmd.Context(), o)
		},
	}
	c.Flags().StringSliceVar(&o.Only, "only", nil, "events to measure; all without this")
	c.Flags().StringSliceVar(&o.Ways, "way", nil, "ways of announcing to measure; all without this")
	c.Flags().StringSliceVar(&o.Modes, "mode", o.Modes, "data planes of the nodes")
	c.Flags().StringVar(&o.Router, "router", o.Router, "the router in front of the nodes: frr or bird")
	c.Flags().BoolVar(&o.IPv6, "ipv6", false, "measure with addresses of IPv6")
	c.Flags().IntVar(&o.Connections, "connections", o.Connections, "connections that are held all the time")
	c.Flags().IntVar(&o.Repetitions, "repetitions", o.Repetitions, "how often each event happens")
	c.Flags().IntVar(&o.Addresses, "addresses", o.Addresses, "addresses that are announced and withdrawn at once")
	c.Flags().StringArrayVar(&o.Annotations, "annotation", nil, "annotation of the measured Service, as KEY=VALUE; may be repeated")
	c.Flags().StringVar(&o.Out, "out", "", "Markdown file to put the tables into; printed without this")
	c.Flags().StringVar(&o.Section, "section", o.Section, "which tables of that file")
	return c
}

// speakerCommand is for the benchmark's own use inside a node.
func speakerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "speaker ROUTER ADDRESSES",
		Short:  "Announce and withdraw addresses as standard input says",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			router, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("ROUTER: %w", err)
			}
			count, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("ADDRESSES: %w", err)
			}
			return bench.AnnounceSpeaker(cmd.Context(), router, count, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
