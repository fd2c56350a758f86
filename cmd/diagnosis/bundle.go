package diagnosis

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/internal/version"
)

// bundleFlags are the flags of bundle, as typed.
type bundleFlags struct {
	doctorFlags
	output string
	mask   []netip.Prefix
}

func Bundle() *cobra.Command {
	f := bundleFlags{doctorFlags: doctorFlags{explainFlags: explainFlags{agent: config.ForMode("nftables")}}}
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Gather what a bug report takes into one archive",
		Long: `Gather what a bug report takes into one archive: Services, EndpointSlices, Pods,
Nodes and NetworkPolicies, and of each node that can be asked: its agent's status,
recent changes and log, what the kernel holds beside what it should, the rules of
others, and doctor's findings. What can't be had is named in bundle.json.

Secrets are never read. Values of environment variables, commands and arguments of
pods are hidden. --mask-addresses replaces the addresses of networks, each by the same
other one everywhere.

doctor and explain read the archive elsewhere, without a cluster: -f bundle.tgz.`,
		Example: `  fairway bundle
  fairway bundle -n shop -o shop.tgz --mask-addresses 203.0.113.0/24
  fairway doctor -f fairway-bundle.tgz -A
  fairway explain -f fairway-bundle.tgz svc/web`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.write(cmd); err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			return nil
		},
	}
	source.Add(c.Flags(), &f.objects)
	c.Flags().StringVar(&f.node, "node", "", "ask this node's agent only")
	c.Flags().StringVarP(&f.output, "output", "o", "fairway-bundle.tgz", `the archive's name, in .tgz; "-" for standard output`)
	c.Flags().Var(&config.CIDRs{List: &f.mask}, "mask-addresses", "replace addresses of these networks")
	c.Flags().StringVar(&f.domain, "cluster-domain", "cluster.local", "domain of the cluster's names")
	f.agent.AddServiceCIDRs(c.Flags())
	return c
}

func (f *bundleFlags) write(cmd *cobra.Command) (err error) {
	if f.output != "-" && !bundle.IsName(f.output) {
		return fmt.Errorf("--output: %q must end with .tgz: doctor and explain know a bundle by that", f.output)
	}
	namespace := ""
	if cmd.Flags().Changed("namespace") {
		namespace = f.objects.Namespace
	}
	x, err := f.examiner()
	if err != nil {
		return err
	}
	contents, err := x.Bundle(cmd.Context(), namespace, version.Version)
	if err != nil {
		return err
	}
	mask := &bundle.Mask{Prefixes: f.mask}
	if f.output == "-" {
		return contents.Write(cmd.OutOrStdout(), mask)
	}
	file, err := os.OpenFile(f.output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := contents.Write(file, mask); err != nil {
		_ = file.Close() // the error is there already
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write %s: %w", f.output, err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "wrote %s: %d Services, %d nodes\n", f.output, len(contents.Objects.Services), len(contents.Nodes))
	for _, line := range contents.About.Missing {
		fmt.Fprintf(out, "not in it: %s\n", line)
	}
	for _, n := range contents.Nodes {
		for _, p := range n.Problems {
			fmt.Fprintf(out, "not in it, of node %s: %s\n", n.Name, p)
		}
	}
	return nil
}
