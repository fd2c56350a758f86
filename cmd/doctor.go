package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/host"
	"github.com/fairway-net/fairway/diagnose/probe"
)

// doctorFlags are the flags of doctor, as typed.
type doctorFlags struct {
	explainFlags
	failOn string
	code   string
	domain string
	all    bool
}

func doctorCommand() *cobra.Command {
	f := doctorFlags{explainFlags: explainFlags{agent: agentFlags{mode: "nftables"}}}
	c := &cobra.Command{
		Use:   "doctor [svc/NAME | ADDRESS[:PORT]]",
		Short: "Find out why a Service doesn't answer, or what is wrong with this machine",
		Long: `Find out why a Service doesn't answer: wrong selectors and ports, endpoints that
aren't ready or don't listen, policies, names, firewalls. Each cause has a code
and a fix. Without a Service, only this machine is looked at.

The exit code is 0 if nothing was found that is at least as sure as --fail-on, 1
if something was, and 2 if doctor could not run.`,
		Example: `  fairway doctor
  fairway doctor svc/web
  fairway doctor svc/web --from pod/client-a
  fairway doctor -A --fail-on proved
  fairway doctor --explain FW117`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.code != "" {
				text, err := doctor.Explain(f.code)
				if err != nil {
					return exitError{2, fmt.Errorf("--explain: %w", err)}
				}
				_, err = io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			failOn, err := doctor.ParseGrade(f.failOn)
			if err != nil {
				return exitError{2, err}
			}
			if f.all {
				if len(args) > 0 {
					return exitError{2, errors.New("--all: give no Service beside it")}
				}
				return f.runAll(cmd, failOn)
			}
			report, err := f.examine(cmd.Context(), args)
			if err != nil {
				return exitError{2, err}
			}
			if err := writeReport(cmd.OutOrStdout(), f.output, report, report.WriteText); err != nil {
				return err
			}
			if worst, found := report.Worst(); found && worst >= failOn {
				return exitError{code: 1}
			}
			return nil
		},
	}
	f.objects.add(c.Flags())
	c.Flags().StringVar(&f.from, "from", "", "the client: pod/NAME, node/NAME or an IP address")
	c.Flags().StringVar(&f.node, "node", "", "the node that the packet reaches; default every node")
	c.Flags().StringVarP(&f.output, "output", "o", "", "json or yaml")
	c.Flags().StringVar(&f.failOn, "fail-on", doctor.Likely.String(), "the lowest grade that makes the exit code 1: note, likely or proved")
	c.Flags().BoolVarP(&f.all, "all", "A", false, "examine every Service, from the API alone; with -n, those of a namespace")
	c.Flags().StringVar(&f.code, "explain", "", "explain a code in full")
	c.Flags().StringVar(&f.domain, "cluster-domain", "cluster.local", "domain of the cluster's names")
	f.agent.addServiceCIDRs(c.Flags())
	return c
}

// examine gathers the evidence and runs the checks. This machine is looked at if
// nothing else is asked about, or if it is a node of the cluster.
func (f *doctorFlags) examine(ctx context.Context, args []string) (*doctor.Report, error) {
	if !slices.Contains([]string{"", "json", "yaml"}, f.output) {
		return nil, fmt.Errorf("--output: %q must be json or yaml", f.output)
	}
	e := &doctor.Evidence{Domain: f.domain}
	if len(args) == 0 {
		e.Host = host.Read(ctx)
		// About this machine, only its own agent.
		f.askAgents(ctx, e, func() []agentlink.Found { return f.objects.agentsHere(ctx) })
		return doctor.Examine(ctx, e), nil
	}
	q, err := explain.ParseQuestion(args[0], f.from, f.objects.namespace)
	if err != nil {
		return nil, err
	}
	q.Node = f.node
	config, err := f.agent.config()
	if err != nil {
		return nil, err
	}
	if e.Objects, err = f.objects.readAll(ctx, q); err != nil {
		return nil, err
	}
	if e.NotHere, err = f.notHere(e.Objects); err != nil {
		return nil, err
	}
	e.Question = q
	e.Service = e.Objects.Of(q.Target)
	find := sync.OnceValue(func() []agentlink.Found { return f.objects.agents(ctx, oneNode(q, e.Objects)) })
	addNodes(e.Objects, find)
	if e.Report, err = explain.FromObjects(q, e.Objects, config.Compile, f.objects.asker(ctx, find)); err != nil {
		return nil, err
	}
	if on := cmp.Or(f.node, e.Report.From.Node); e.NotHere == "" && (on == "" || isHere(e.Objects, on)) {
		e.Host, e.Probe = host.Read(ctx), probe.Prober{}
	} else if err := f.elsewhere(ctx, e, find()); err != nil {
		return nil, err
	}
	if from := e.Report.From; from.Kind == "pod" && !hostNetwork(e.Objects, from) {
		if p, ok := e.Probe.(agentlink.LocalProber); ok {
			e.Client = &doctor.Client{Resolvers: p.Resolvers(from.Addr)}
		}
	}
	f.askAgents(ctx, e, find)
	if e.Service != nil && len(e.Report.Views) > 0 {
		f.readFlows(ctx, e, find())
	}
	return doctor.Examine(ctx, e), nil
}

// hostNetwork reports whether a pod is on its node's network, where the processes of
// many pods are.
func hostNetwork(o *explain.Objects, pod explain.Source) bool {
	p := o.Pod(pod.Namespace, pod.Name)
	return p == nil || p.Spec.HostNetwork
}

// notHere says why this machine can't stand for a node: the question is about
// manifests, or the machine has no address of a node.
func (f *doctorFlags) notHere(o *explain.Objects) (string, error) {
	if len(f.objects.files) > 0 {
		return "the question is about manifests", nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, a := range addrs {
		own, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		for _, n := range o.Nodes {
			if slices.ContainsFunc(n.Status.Addresses, func(na corev1.NodeAddress) bool { return na.Address == own.Addr().String() }) {
				return "", nil
			}
		}
	}
	return "this machine is no node of the cluster; run doctor on one", nil
}
