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
	var what remains
	var after kubeProxy
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that any mode, or kube-proxy, left on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("after-kube-proxy") {
				mode, err := after.wait(cmd.Context(), cmd.OutOrStdout())
				if err != nil {
					return err
				}
				options.KeepKubeProxy, what.keep = true, sharedWith(mode)
			} else if options.KeepKubeProxy {
				what.keep = shared
			}
			return cleanup(cmd.Context(), options, what, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's --state-dir")
	c.Flags().StringSliceVar(&what.only, "mode", nil, "remove what these modes left, and nothing else")
	c.Flags().BoolVar(&options.KeepKubeProxy, "keep-kube-proxy", false, "leave kube-proxy's own table, and what has kube-proxy's names in the modes iptables and ipvs, for a kube-proxy that runs again")
	after.add(c.Flags())
	addCgroupFlag(c.Flags(), &options.Cgroup)
	return c
}

// remains are those that are to be removed.
type remains struct {
	only []string // modes; nil is all
	keep []string // modes
}

// shared are the modes whose kernel objects have kube-proxy's names, so that
// either of the two makes them its own.
var shared = []string{"iptables", "ipvs"}

// sharedWith are those that a kube-proxy in a mode may have made its own. In ipvs
// mode it has some of the iptables mode's chains too, and can't be told apart.
func sharedWith(mode string) []string {
	switch mode {
	case "nftables":
		return nil
	case "iptables":
		return []string{"iptables"}
	}
	return shared
}

// cleanup removes what modes left, and says so; unless it shall be kept, what
// kube-proxy left, too.
func cleanup(ctx context.Context, options kernel.Options, what remains, out io.Writer) error {
	var failed []error
	for _, mode := range what.only {
		if _, err := dataplane.Find(mode); err != nil {
			return fmt.Errorf("--mode: %w", err)
		}
	}
	for _, kind := range dataplane.Kinds() {
		if what.only != nil && !slices.Contains(what.only, kind.Name) {
			continue
		}
		if slices.Contains(what.keep, kind.Name) {
			fmt.Fprintf(out, "%s: left for kube-proxy\n", kind.Name)
			continue
		}
		plane, err := kind.New(options)
		if kernel.IsMissing(err) {
			// A mode that can't run here can have left nothing.
			fmt.Fprintf(out, "%s: nothing to remove: %v\n", kind.Name, err)
			continue
		}
		if err == nil && options.KeepKubeProxy { // which is in force
			err = dataplane.Retire(ctx, plane)
		} else if err == nil {
			err = plane.Remove(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("clean up %s mode: %w", kind.Name, err))
			continue
		}
		fmt.Fprintf(out, "%s: clean\n", kind.Name)
	}
	if what.only != nil {
		return errors.Join(failed...)
	}
	if err := lease.Cleanup(); err != nil {
		failed = append(failed, fmt.Errorf("clean up DNS: %w", err))
	}
	return errors.Join(failed...)
}
