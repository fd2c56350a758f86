package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/dump"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// dumpFlags are the flags of dump, as typed.
type dumpFlags struct {
	objects objectFlags
	node    string
	output  string
	all     bool
	options kernel.Options
	missing []string // nodes whose agents don't answer
}

func dumpCommand() *cobra.Command {
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
				return exitError{2, err}
			}
			different := false
			for _, r := range reports {
				if err := writeReport(cmd.OutOrStdout(), f.output, r, func(out io.Writer) error { return r.WriteText(out, f.all) }); err != nil {
					return err
				}
				different = different || len(r.Differences()) > 0
			}
			if different {
				return exitError{code: 1}
			}
			return nil
		},
	}
	f.objects.addAPI(c.Flags())
	c.Flags().StringVar(&f.node, "node", "", "the node whose agent to ask; default this machine's")
	c.Flags().StringVarP(&f.output, "output", "o", "", "json or yaml")
	c.Flags().BoolVar(&f.all, "objects", false, "list every kernel object, not only those that differ")
	c.Flags().StringVar(&f.options.StateDir, "state-dir", kernel.DefaultStateDir, "the agent's state directory, where no agent answers")
	addCgroupFlag(c.Flags(), &f.options.Cgroup)
	return c
}

// reports are one for the agent's mode, or, without an agent, one for each mode
// that has objects in the kernel.
func (f *dumpFlags) reports(ctx context.Context, args []string) ([]*dump.Report, error) {
	if !slices.Contains([]string{"", "json", "yaml"}, f.output) {
		return nil, fmt.Errorf("--output: %q must be json or yaml", f.output)
	}
	service := ""
	if len(args) > 0 {
		target, err := explain.ParseTarget(args[0], f.objects.namespace)
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
			return nil, fmt.Errorf("no agent answers on this machine%s; what is of one Service can't be told without; fairway dump lists all objects", because(f.missing))
		}
		return f.everything(ctx)
	}
	if agent.Path == "" {
		report, err := agent.Objects(ctx, service)
		if err != nil {
			return nil, err
		}
		return []*dump.Report{report}, nil
	}
	if err := enterNetworkOf(agent.Status.PID); err != nil {
		return nil, err
	}
	report, err := dumpAgent(ctx, agent, service)
	if err != nil {
		return nil, err
	}
	return []*dump.Report{report}, nil
}

// agent is the one to ask; nil if none answers.
func (f *dumpFlags) agent(ctx context.Context) (*agentlink.Found, error) {
	if len(f.objects.sockets) == 0 && f.options.StateDir != kernel.DefaultStateDir {
		f.objects.sockets = []string{filepath.Join(f.options.StateDir, agentlink.SocketName)}
	}
	var there []agentlink.Found
	var names []string
	all := f.objects.agents(ctx, f.node)
	if f.node == "" {
		here := slices.DeleteFunc(slices.Clone(all), func(a agentlink.Found) bool { return a.Path == "" || a.Err != nil })
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
		return nil, fmt.Errorf("--node: no agent of a node %q answers%s", f.node, because(f.missing))
	case len(there) == 0:
		return nil, nil
	}
	return &there[0], nil
}

// because gives lines as the end of an error.
func because(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return ": " + strings.Join(lines, "; ")
}

// dumpAgent compares what an agent has in force with the kernel.
func dumpAgent(ctx context.Context, agent *agentlink.Found, service string) (*dump.Report, error) {
	table, err := agent.Table(ctx)
	if err != nil {
		return nil, err
	}
	kind, err := dataplane.Find(agent.Status.Mode)
	if err != nil {
		return nil, err
	}
	options := agent.Status.Plane.Kernel()
	have, err := kernelObjects(ctx, kind, options)
	if err != nil {
		return nil, err
	}
	report, err := dump.Of(table, service, func(t *model.Table) ([]kernel.Object, error) { return kind.Render(t, options) }, have)
	if err != nil {
		return nil, err
	}
	report.Node, report.Mode, report.Lacks = agent.Status.Node, agent.Status.Mode, agent.Status.Lacks
	return report, nil
}

// everything lists the objects of all modes.
func (f *dumpFlags) everything(ctx context.Context) ([]*dump.Report, error) {
	var list []*dump.Report
	for _, kind := range dataplane.Kinds() {
		have, err := kernelObjects(ctx, kind, f.options)
		if kernel.IsMissing(err) && !kernel.IsNotPermitted(err) {
			continue // it can have nothing there
		}
		if err != nil {
			return nil, err
		}
		if len(have) > 0 {
			report := dump.Read(have, "no agent answers on this machine")
			report.Mode = kind.Name
			list = append(list, report)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no agent answers on this machine%s; and no mode has anything in the kernel", because(f.missing))
	}
	return list, nil
}

// kernelObjects reads what a mode has in the kernel, whichever process put it there.
func kernelObjects(ctx context.Context, kind dataplane.Kind, options kernel.Options) (objects []kernel.Object, err error) {
	plane, err := kind.New(options)
	if err != nil {
		return nil, fmt.Errorf("read %s mode's objects: %w", kind.Name, err)
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	reading, err := plane.Read(ctx, kernel.Query{Objects: true})
	if err != nil {
		return nil, fmt.Errorf("read %s mode's objects: %w", kind.Name, err)
	}
	return reading.Objects, nil
}

// enterNetworkOf has this process go on in the network namespace of another: it
// begins again there, unless it is the same.
func enterNetworkOf(pid int) error {
	theirs := fmt.Sprintf("/proc/%d/ns/net", pid)
	there, err := os.Readlink(theirs)
	if err != nil {
		return fmt.Errorf("find the agent's network namespace: %w", err)
	}
	if here, err := os.Readlink("/proc/self/ns/net"); err != nil || here == there {
		return err
	}
	ns, err := os.Open(theirs)
	if err != nil {
		return fmt.Errorf("find the agent's network namespace: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("begin again in the agent's network namespace: %w", err)
	}
	// execve takes the calling thread's namespace along, for all of the process.
	runtime.LockOSThread()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the agent's network namespace: %w", err)
	}
	return fmt.Errorf("begin again in the agent's network namespace: %w", syscall.Exec(self, os.Args, os.Environ()))
}
