package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/trace"
	"github.com/fairway-net/fairway/model"
)

// traceFlags are the flags of trace, as typed.
type traceFlags struct {
	objects objectFlags
	from    string
	node    string
	output  string
	send    bool
	wait    time.Duration
	timeout time.Duration
}

// mostWait is the longest time that trace waits for somebody's connection.
const mostWait = 10 * time.Minute

// mostNodesNamed is how many nodes are named of which one must be chosen.
const mostNodesNamed = 10

func traceCommand() *cobra.Command {
	f := traceFlags{}
	c := &cobra.Command{
		Use:   "trace svc/NAME[:PORT] | ADDRESS:PORT",
		Short: "Follow one real connection through every rule of a node, including other programs' rules",
		Long: `Follow one real connection through the rules of its node, and, with --send, of the
endpoint's node if its agent can be asked: each rule of nftables or iptables
whose conditions held, whoever made it, where it was translated, which endpoint was
chosen, which rule dropped it or why the kernel did, and what came back.

Without --send, wait for the next connection that somebody makes. With --send, make
one: from the pod or node that --from names, else from the node itself. It takes root
on the node, or the right to ask its agent by way of the API (pods/exec in Kubernetes,
to create nodes/proxy with Fairway's own API server). While it runs, a table of nftables
that belongs to this process or to the agent marks the packets of this connection alone;
the kernel removes it when the process ends, however it does, and the agent when the
command does.

The exit code is 0 if the connection was answered, 1 if it was lost or refused, 2 if it
can't be traced from here, and 3 if none came in time.`,
		Example: `  sudo fairway trace svc/web --send
  sudo fairway trace svc/web --from pod/client-a --send
  sudo fairway trace svc/web:http --from pod/client-a      # waits for its next connection
  sudo fairway trace 10.96.0.10:53/udp --from node/node1 --send -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := f.trace(cmd, args[0])
			if err != nil {
				return exitError{2, err}
			}
			text := func(out io.Writer) error { return report.WriteText(out, f.output == "wide") }
			if err := writeReport(cmd.OutOrStdout(), f.output, report, text); err != nil {
				return err
			}
			if code := report.ExitCode(); code != 0 {
				return exitError{code: code}
			}
			return nil
		},
	}
	f.objects.addAPI(c.Flags())
	c.Flags().StringVar(&f.from, "from", "", "who connects: pod/NAME, node/NAME or an IP address; without it, anybody, and with --send the node")
	c.Flags().StringVar(&f.node, "node", "", "the node to watch; without it, that of --from")
	c.Flags().BoolVar(&f.send, "send", false, "make a connection, and close it at once; over UDP send a line of text")
	c.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "how long to wait for somebody's connection, ten minutes at most")
	c.Flags().DurationVar(&f.timeout, "timeout", 3*time.Second, "how long to wait for an answer")
	c.Flags().StringVarP(&f.output, "output", "o", "", "wide, json or yaml")
	return c
}

// trace follows a connection.
func (f *traceFlags) trace(cmd *cobra.Command, typed string) (*trace.Report, error) {
	switch {
	case !slices.Contains([]string{"", "wide", "json", "yaml"}, f.output):
		return nil, fmt.Errorf("--output: %q must be wide, json or yaml", f.output)
	case f.wait <= 0 || f.wait > mostWait:
		return nil, fmt.Errorf("--wait: %s must be more than 0 and at most %s", f.wait, mostWait)
	case f.timeout <= 0:
		return nil, fmt.Errorf("--timeout: %s must be more than 0", f.timeout)
	}
	q, err := explain.ParseQuestion(typed, f.from, f.objects.namespace)
	if err != nil {
		return nil, err
	}
	t := &tracer{flags: f, question: q, said: cmd.ErrOrStderr()}
	if err := checkRoot(cmd); err != nil {
		t.notRoot = fmt.Errorf("to trace on this machine takes root: %w", err)
	}
	if err := t.prepare(cmd.Context()); err != nil {
		return nil, err
	}
	err = t.run(cmd.Context())
	if t.node != nil {
		if closing := t.node.Close(); err == nil {
			err = closing
		}
	}
	return t.report, err
}

// prepare finds out what is asked for: which packets, on which node.
func (t *tracer) prepare(ctx context.Context) (err error) {
	var unnamed string
	if t.objects, err = t.flags.objects.read(ctx); err != nil {
		if t.question.Target.Name != "" || t.question.From.Name != "" {
			return err
		}
		t.objects, unnamed = &explain.Objects{}, fmt.Sprintf("names of addresses: %v", err)
	}
	if why := t.objects.NoAPI; why != "" {
		unnamed = "the API: " + why + "; this is what agents have in force"
	}
	service := t.objects.Of(t.question.Target)
	if service == nil && t.question.Target.Name != "" {
		return fmt.Errorf("there is no Service %s/%s", t.question.Target.Namespace, t.question.Target.Name)
	}
	t.keys = t.question.Target.Keys(service, t.question.From)
	if len(t.keys) == 0 {
		return fmt.Errorf("%q has no address and port to connect to", t.question.Typed)
	}
	if t.question.From, err = t.objects.Locate(t.question.From, t.keys[0].Addr.Is6()); err != nil {
		return err
	}
	if t.question.From.Kind == "pod" && !t.question.From.Addr.IsValid() {
		return fmt.Errorf("--from: the address of %s isn't known; give the address", t.question.From)
	}
	if t.keys = sameFamily(t.keys, t.question.From); len(t.keys) == 0 {
		return fmt.Errorf("%s has no address of the address family of %s", t.question.From, t.question.Typed)
	}
	if err := t.choose(ctx); err != nil {
		return err
	}
	if unnamed != "" {
		t.report.NotChecked = append(t.report.NotChecked, unnamed)
	}
	return t.decide(ctx)
}

// sameFamily are the keys of the source's address family: all if its address isn't
// known.
func sameFamily(keys []model.Key, from explain.Source) []model.Key {
	if !from.Addr.IsValid() || from.Kind == "node" { // nodes have addresses of both, as far as the cluster does
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k model.Key) bool { return k.Addr.Is6() != from.Addr.Is6() })
}

// decide asks the agent what it makes of the connection. Without an agent, the trace
// goes on.
func (t *tracer) decide(ctx context.Context) error {
	if t.agent == nil {
		return nil
	}
	view, err := t.agent.Decide(ctx, t.keys, t.question.From)
	if err != nil {
		t.report.NotChecked = append(t.report.NotChecked, fmt.Sprintf("what the agent has in force: %v", err))
		return nil //nolint:nilerr // it is said
	}
	t.view = view
	return nil
}

// choose finds the agent of the node to watch, and the node's network namespace.
func (t *tracer) choose(ctx context.Context) error {
	name := t.flags.node
	if name == "" {
		name = t.question.From.Node
	}
	var answering []agentlink.Found
	all := t.flags.objects.agents(ctx, "")
	missing := agentlink.Missing(all)
	for _, a := range all {
		if a.Err == nil && (name == "" || a.Status.Node == name) {
			answering = append(answering, a)
		}
	}
	if here := slices.DeleteFunc(slices.Clone(answering), func(a agentlink.Found) bool { return a.Path == "" }); name == "" && len(here) == 1 {
		answering = here // this machine, unless another is named
	}
	switch {
	case len(answering) == 1:
		t.agent = &answering[0]
		if !t.isElsewhere() && t.notRoot != nil {
			return t.notRoot
		}
		t.report = trace.New(t.question, t.agent.Status.Node, planeOf(*t.agent))
		t.others = t.hops(all)
		t.report.NotChecked = append(t.report.NotChecked, missing...)
		return t.enter()
	case len(answering) > 1:
		var names []string
		for _, a := range answering {
			names = append(names, a.Status.Node)
		}
		if len(names) > mostNodesNamed {
			names = append(names[:mostNodesNamed], "...")
		}
		return fmt.Errorf("--node: must be one of %s", strings.Join(names, ", "))
	case name != "" && !isHere(t.objects, name):
		return fmt.Errorf("no agent of node %s answers%s: run fairway trace there", name, because(missing))
	case t.notRoot != nil:
		return fmt.Errorf("no agent answers%s, and %w", because(missing), t.notRoot)
	}
	t.report = trace.New(t.question, name, trace.Plane{})
	t.report.NotChecked = append(t.report.NotChecked, "the data plane: no agent answers on this machine")
	return t.enter()
}
