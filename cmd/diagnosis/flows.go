package diagnosis

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/flows"
	"github.com/fairway-net/fairway/diagnose/flows/live"
)

// flowsFlags are the flags of flows, as typed.
type flowsFlags struct {
	objects collect.Source
	node    string
	service string
	verdict string
	output  string
	follow  bool

	out     sync.Mutex // lines are written one at a time
	written int        // lines
}

func Flows() *cobra.Command {
	f := flowsFlags{}
	c := &cobra.Command{
		Use:   "flows",
		Short: "Show connections to Services, with the names of both ends",
		Long: `Show the connections to Services that nodes have, or, with --follow, each as it
begins, ends, is refused or dropped, with the reason. The agents are asked: of this
machine as root, of others by way of the API (pods/exec in Kubernetes, nodes/proxy
with Fairway's own API server), with the rights that you have.

Nothing is recorded while nobody asks. What can't be told on a node is said.`,
		Example: `  fairway flows
  fairway flows -f --service web
  fairway flows -f --verdict refused -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.run(cmd); err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			return nil
		},
	}
	source.Add(c.Flags(), &f.objects)
	c.Flags().StringVar(&f.node, "node", "", "show this node's connections only")
	c.Flags().StringVar(&f.service, "service", "", "show this Service's connections only")
	c.Flags().StringVar(&f.verdict, "verdict", "", "show only those that are "+strings.Join(flows.Verdicts(), ", "))
	c.Flags().StringVarP(&f.output, "output", "o", "", "json: an object for each line")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on, with connections that begin and end")
	return c
}

func (f *flowsFlags) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	filter, err := f.filter()
	if err != nil {
		return err
	}
	say := func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "fairway: %s\n", text) }
	r := live.Request{Source: &f.objects, Node: f.node, Follow: f.follow, Note: say}
	r.Tell = func(r flows.Record) error { return f.write(out, filter, r) }
	if f.output == "" {
		r.Begin = func() { fmt.Fprintln(out, flows.Header) }
	}
	if err := r.Run(cmd.Context(), filter.Service); err != nil {
		return err
	}
	if !f.follow && f.written == 0 {
		say("there is no such connection now; with -f, each is shown as it begins and ends")
	}
	return nil
}

// write writes a record if it is asked for.
func (f *flowsFlags) write(out io.Writer, filter flows.Filter, r flows.Record) error {
	if !filter.Wants(r) {
		return nil
	}
	f.out.Lock()
	defer f.out.Unlock()
	f.written++
	if f.output == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	_, err := fmt.Fprintln(out, r)
	return err
}

// filter is what the flags ask for.
func (f *flowsFlags) filter() (flows.Filter, error) {
	filter := flows.Filter{Verdict: f.verdict}
	if f.verdict != "" && !slices.Contains(flows.Verdicts(), f.verdict) {
		return filter, fmt.Errorf("--verdict: %q must be one of %s", f.verdict, strings.Join(flows.Verdicts(), ", "))
	}
	if f.output != "" && f.output != "json" {
		return filter, fmt.Errorf("--output: %q must be json", f.output)
	}
	if f.service == "" {
		return filter, nil
	}
	target, err := explain.ParseTarget(f.service, f.objects.Namespace)
	if err == nil && target.Name == "" {
		err = fmt.Errorf("%q: want the name of a Service", f.service)
	}
	filter.Service = target.Namespace + "/" + target.Name
	if err != nil {
		err = fmt.Errorf("--service: %w", err)
	}
	return filter, err
}
