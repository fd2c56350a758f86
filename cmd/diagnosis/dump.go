package diagnosis

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/compare"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
)

// dumpFlags are the flags of dump, as typed.
type dumpFlags struct {
	objects collect.Source
	node    string
	output  string
	all     bool
	options kernel.Options
	missing []string // nodes whose agents don't answer
}

func Dump() *cobra.Command {
	f := dumpFlags{}
	c := &cobra.Command{
		Use:   "dump [svc/NAME]",
		Short: "Show what the kernel holds of one Service or of all, in any mode",
		Long: `Show what the agent of a node has in force, in the words of render --table, and
compare each kernel object with what is read back from the kernel. Nothing is
changed. It takes root on the node, or the right to ask its agent by way of the API
(pods/exec in Kubernetes, nodes/proxy with Fairway's own API server).

Where no agent answers, the objects of every mode that are there are listed.

The exit code is 0 if the kernel holds what it should, 1 if something is missing or
unexpected, and 2 if it could not be told.`,
		Example: `  fairway dump svc/web
  fairway dump svc/web --objects
  fairway dump -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := f.reports(cmd.Context(), args)
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			different := false
			for _, r := range reports {
				if err := writeReport(cmd.OutOrStdout(), f.output, r, func(out io.Writer) error { return r.WriteText(out, f.all) }); err != nil {
					return err
				}
				different = different || len(r.Differences()) > 0
			}
			if different {
				return exit.Error{Code: 1}
			}
			return nil
		},
	}
	source.Add(c.Flags(), &f.objects)
	c.Flags().StringVar(&f.node, "node", "", "the node whose agent to ask; default this machine's")
	c.Flags().StringVarP(&f.output, "output", "o", "", "json or yaml")
	c.Flags().BoolVar(&f.all, "objects", false, "list every kernel object, not only those that differ")
	c.Flags().StringVar(&f.options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's state directory, where no agent answers")
	config.AddCgroup(c.Flags(), &f.options.Cgroup)
	return c
}

// reports are one for the agent's mode, or, without an agent, one for each mode
// that has objects in the kernel.
func (f *dumpFlags) reports(ctx context.Context, args []string) ([]*dump.Report, error) {
	if err := checkOutput(f.output, "json", "yaml"); err != nil {
		return nil, err
	}
	service := ""
	if len(args) > 0 {
		target, err := explain.ParseTarget(args[0], f.objects.Namespace)
		if err != nil {
			return nil, err
		}
		if target.Name == "" {
			return nil, fmt.Errorf("%q: want svc/NAME", args[0])
		}
		service = target.Namespace + "/" + target.Name
	}
	agent, err := f.agent(ctx)
	if err != nil {
		return nil, err
	}
	if agent == nil {
		if service != "" {
			return nil, fmt.Errorf("no agent answers on this machine%s; what is of one Service can't be told without; fairway dump lists all objects", agentlink.Because(f.missing))
		}
		return compare.All(ctx, f.options, agentlink.Because(f.missing))
	}
	if !agent.IsLocal() {
		report, err := agent.Objects(ctx, service)
		if err != nil {
			return nil, err
		}
		return []*dump.Report{report}, nil
	}
	if err := compare.EnterNetworkOf(agent.Status.PID); err != nil {
		return nil, err
	}
	report, err := compare.Here(ctx, agent, service)
	if err != nil {
		return nil, err
	}
	return []*dump.Report{report}, nil
}

// agent is the one to ask; nil if none answers.
func (f *dumpFlags) agent(ctx context.Context) (*agentlink.Found, error) {
	if len(f.objects.Sockets) == 0 && f.options.StateDir != kernel.DefaultStateDir {
		f.objects.Sockets = []string{filepath.Join(f.options.StateDir, agentlink.SocketName)}
	}
	var there []agentlink.Found
	var names []string
	all := f.objects.Agents(ctx, f.node)
	if f.node == "" {
		here := slices.DeleteFunc(slices.Clone(all), func(a agentlink.Found) bool { return !a.IsLocal() || a.Err != nil })
		if len(here) > 0 { // this machine's, unless another is asked for
			all = here
		}
	}
	f.missing = agentlink.Missing(all)
	for _, a := range all {
		if a.Err == nil && (f.node == "" || f.node == a.Status.Node) {
			there, names = append(there, a), append(names, a.Status.Node)
		}
	}
	switch {
	case len(there) > 1:
		return nil, fmt.Errorf("--node: must be one of %s", strings.Join(names, ", "))
	case len(there) == 0 && f.node != "":
		return nil, fmt.Errorf("--node: no agent of a node %q answers%s", f.node, agentlink.Because(f.missing))
	case len(there) == 0:
		return nil, nil
	}
	return &there[0], nil
}
