package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/dns/lease"
	"github.com/fairway-net/fairway/internal/kernel"
)

func cleanupCommand() *cobra.Command {
	var options kernel.Options
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that any mode, or kube-proxy, left on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cleanup(cmd.Context(), options, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	c.Flags().BoolVar(&options.KeepKubeProxy, "keep-kube-proxy", false, "leave kube-proxy's own table, and what has kube-proxy's names in the modes iptables and ipvs, for a kube-proxy that runs again")
	addCgroupFlag(c.Flags(), &options.Cgroup)
	return c
}

// shared are the modes whose kernel objects have kube-proxy's names, so that
// either of the two makes them its own.
var shared = []string{"iptables", "ipvs"}

// cleanup removes what any mode left, and says so; unless it shall be kept, what
// kube-proxy left, too.
func cleanup(ctx context.Context, options kernel.Options, out io.Writer) error {
	var failed []error
	for _, kind := range dataplane.Kinds() {
		if options.KeepKubeProxy && slices.Contains(shared, kind.Name) {
			fmt.Fprintf(out, "%s: left for kube-proxy\n", kind.Name)
			continue
		}
		plane, err := kind.New(options)
		if kernel.IsMissing(err) {
			// A mode that can't run here can have left nothing.
			fmt.Fprintf(out, "%s: nothing to remove: %v\n", kind.Name, err)
			continue
		}
		if err == nil {
			err = plane.Remove(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("clean up %s mode: %w", kind.Name, err))
			continue
		}
		fmt.Fprintf(out, "%s: clean\n", kind.Name)
	}
	if err := lease.Cleanup(); err != nil {
		failed = append(failed, fmt.Errorf("clean up DNS: %w", err))
	}
	return errors.Join(failed...)
}
