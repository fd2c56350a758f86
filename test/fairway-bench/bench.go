package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/bench"
)

// runCommand measures all parts.
func runCommand(common *common) *cobra.Command {
	o := bench.Options{Changes: 1_000_000, Version: version}
	c := &cobra.Command{
		Use:   "fairway-bench",
		Short: "Measure how soon changes are in force, what they cost, and the speed of the data planes",
		Long: "Measures with an API server and an agent as processes of their own, the agent's in a network namespace.\n" +
			"Nothing outside of namespaces made for it is touched; root is needed. The parts:\n" + bench.PartNames(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Fairway, err = common.program(); err != nil {
				return err
			}
			o.Stdout, o.Progress = cmd.OutOrStdout(), os.Stderr
			o.Log = common.log()
			return bench.Run(cmd.Context(), o)
		},
	}
	c.Flags().StringSliceVar(&o.Only, "only", nil, "parts to measure; all without this")
	c.Flags().StringSliceVar(&o.Modes, "mode", nil, "modes to measure; all that this kernel has without this")
	c.Flags().IntVar(&o.Services, "services", 0, "with --endpoints: the one size to measure at")
	c.Flags().IntVar(&o.Endpoints, "endpoints", 0, "endpoints of each Service")
	c.Flags().IntVar(&o.Changes, "changes", o.Changes, "endpoint changes of the soak in nftables mode; a tenth of them in the others")
	c.Flags().StringVar(&o.Out, "out", "", "Markdown file to put the tables into; printed without this")
	c.Flags().StringVar(&o.Section, "section", "", "which tables of that file: those of another kind of machine, say, by a name of their own")
	c.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "an API server to measure with, which has no Services but its own; one is started without this")
	c.Flags().StringVar(&o.Agent, "agent", "", "the program whose agent is measured, such as the image's; that of --fairway without this")
	c.Flags().StringVar(&o.KubeProxy, "kube-proxy", "", "the program kube-proxy, to be measured beside each mode that it has")
	c.Flags().StringVar(&o.Dir, "dir", "", "where the API server keeps its data and logs go; a temporary directory without this")
	return c
}

// objectsCommand is for the benchmark's own use inside a node.
func objectsCommand() *cobra.Command {
	var mode, out string
	var options kernel.Options
	c := &cobra.Command{
		Use:    "objects",
		Short:  "Write what a mode has in the kernel to a file",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.WriteObjects(cmd.Context(), mode, options, out)
		},
	}
	c.Flags().StringVar(&mode, "mode", "", "the mode")
	c.Flags().StringVar(&out, "out", "", "the file")
	c.Flags().StringVar(&options.IPTablesVariant, "iptables-variant", "", "nft or legacy")
	c.Flags().StringVar(&options.StateDir, "state-dir", "", "the agent's --state-dir")
	return c
}

// gatewayCommand measures engines for Gateways.
func gatewayCommand(common *common) *cobra.Command {
	o := bench.GatewayOptions{Routes: []int{100, 5000}, Engines: []string{"native"}, Rounds: 20, Samples: 100}
	o.Version = version
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Measure engines for Gateways beside haproxy and nginx",
		Long: "Measures what a request and a TLS handshake cost, how soon a change of a route or of endpoints is in force\n" +
			"while others change too, and memory: of `fairway gateway`, an engine after the other, and of haproxy and nginx where\n" +
			"they are installed. All take turns in one run. Nothing outside of namespaces made for it is touched; root is needed.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Fairway, err = common.program(); err != nil {
				return err
			}
			o.Stdout, o.Progress = cmd.OutOrStdout(), os.Stderr
			o.Log = common.log()
			return bench.Gateways(cmd.Context(), o)
		},
	}
	c.Flags().IntSliceVar(&o.Routes, "routes", o.Routes, "how many routes, growing; requests are measured at the last")
	c.Flags().StringSliceVar(&o.Engines, "engine", o.Engines, "engine of fairway gateway; the tables keep what was measured of another one")
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "turns of half a second that each takes with requests, and with handshakes")
	c.Flags().IntVar(&o.Samples, "samples", o.Samples, "changes of a route, and of endpoints")
	c.Flags().StringVar(&o.Out, "out", "", "Markdown file to put the tables into; printed without this")
	c.Flags().StringVar(&o.Dir, "dir", "", "where the API server keeps its data and logs go; a temporary directory without this")
	return c
}

// watchersCommand measures an API server under many watches.
func watchersCommand(common *common) *cobra.Command {
	o := bench.WatchersOptions{Watchers: []int{100, 1000, 5000}, Writes: 50}
	o.Services, o.Endpoints = 1000, 10
	c := &cobra.Command{
		Use:   "watchers",
		Short: "Measure what many nodes cost one API server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Fairway, err = common.program(); err != nil {
				return err
			}
			o.Stdout, o.Progress = cmd.OutOrStdout(), os.Stderr
			o.Log = common.log()
			return bench.Watchers(cmd.Context(), o)
		},
	}
	c.Flags().IntSliceVar(&o.Watchers, "watchers", o.Watchers, "how many nodes to simulate, growing")
	c.Flags().IntVar(&o.Writes, "writes", o.Writes, "endpoint changes while they watch")
	c.Flags().IntVar(&o.Services, "services", o.Services, "Services at the API")
	c.Flags().IntVar(&o.Endpoints, "endpoints", o.Endpoints, "endpoints of each Service")
	c.Flags().StringVar(&o.Dir, "dir", "/tmp/fairway-bench", "where the API server keeps its data")
	return c
}
