package diagnosis

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/source"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/change"
	"github.com/fairway-net/fairway/diagnose/collect"
)

// diffFlags are the flags of diff, as typed.
type diffFlags struct {
	objects collect.Source
	files   []string
	agent   *config.Agent
	output  string
}

func Diff() *cobra.Command {
	f := diffFlags{agent: config.ForMode("nftables")}
	c := &cobra.Command{
		Use:   "diff -f FILES",
		Short: "Say what applying manifests would do to packets and requests",
		Long: `Say what applying manifests would do: which addresses, ports, hosts and paths
appear, go or lead elsewhere, which endpoints take connections, which Services
would have none, and which objects the server would refuse. Nothing is changed.

The server is asked by a dry run for each object that would be another; who may
not ask that has objects merged here, as kubectl apply merges them. Pods that
workloads will make, and addresses that the server will choose, are named, not
made up.

The exit code is 0 if no packet and no request goes elsewhere, 1 if some do or an
object would be refused, and 2 if it could not be told.`,
		Example: `  fairway diff -f manifests/
  kubectl kustomize overlays/prod | fairway diff -f -
  fairway diff -f web.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := f.report(cmd)
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			if err := writeReport(cmd.OutOrStdout(), f.output, report, report.WriteText); err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			if !report.IsNone() {
				return exit.Error{Code: 1}
			}
			return nil
		},
	}
	source.Add(c.Flags(), &f.objects)
	c.Flags().StringSliceVarP(&f.files, "filename", "f", nil, `manifests: files, folders, or "-" for standard input`)
	c.Flags().StringVarP(&f.output, "output", "o", "", "json or yaml")
	f.agent.AddServiceCIDRs(c.Flags())
	return c
}

// report compares what runs with what would.
func (f *diffFlags) report(cmd *cobra.Command) (*change.Report, error) {
	if len(f.files) == 0 {
		return nil, errors.New(`--filename: name manifests: files, folders, or "-" for standard input`)
	}
	if err := checkOutput(f.output, "json", "yaml"); err != nil {
		return nil, err
	}
	role, err := f.agent.Config()
	if err != nil {
		return nil, err
	}
	p, err := joined(cmd.Context(), &f.objects, f.files)
	if err != nil {
		return nil, err
	}
	report, err := change.Compare(cmd.Context(), change.Input{Before: p.Before, After: p.After, Compile: role.Compile, Addresses: p.Addresses, Ports: p.Ports})
	if err != nil {
		return nil, err
	}
	report.Refused, report.NotChecked = p.Refused, p.NotChecked
	return report, nil
}
