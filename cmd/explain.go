package cmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/explain"
)

// explainFlags are the flags of explain, as typed.
type explainFlags struct {
	objects objectFlags
	agent   agentFlags
	from    string
	node    string
	output  string
	rules   bool
	kernel  bool
	method  string
	headers []string
}

func explainCommand() *cobra.Command {
	f := explainFlags{agent: agentFlags{mode: "nftables"}}
	c := &cobra.Command{
		Use:   "explain svc/NAME | ADDRESS[:PORT] | NAME.NAMESPACE.svc | URL",
		Short: "Say where packets to a Service go, and why not to each other endpoint",
		Long: `Say what happens to the first packet of a connection to a Service: whether it is
forwarded, to which endpoints, with which share, and for each other endpoint why
it is not used. The reasons come from the code that chooses endpoints. As root on
a node, what its kernel holds of the Service is read back and compared.

Of a URL, say what Gateways and Ingresses do with the request: which listener and
rule take it, why not the rules that come before, and who may answer.

The exit code is 0 if packets are forwarded, 1 if they are refused, dropped or
unknown, and 2 if it could not be told: also where the kernel differs.`,
		Example: `  fairway explain svc/web
  fairway explain svc/web:http --from pod/client-a
  fairway explain 10.96.0.10:53/udp --from node/node1
  fairway explain web.default.svc --rules
  fairway explain -f manifests/ 10.96.0.10:80 --from 10.244.1.7
  fairway explain https://shop.example.com/cart -X POST -H 'Version: two'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isRequest(args[0]) {
				return f.explainRequest(cmd, args[0])
			}
			report, err := f.report(cmd, args[0])
			if err != nil {
				return exitError{2, err}
			}
			if err := writeReport(cmd.OutOrStdout(), f.output, report, f.text(report)); err != nil {
				return err
			}
			if code := report.ExitCode(); code != 0 {
				return exitError{code: code}
			}
			return nil
		},
	}
	f.objects.add(c.Flags())
	c.Flags().StringVar(&f.from, "from", "", "the client: pod/NAME, node/NAME or an IP address; default a pod, a node and somebody outside")
	c.Flags().StringVar(&f.node, "node", "", "the node that the packet reaches; without it, the node of --from, or every node")
	c.Flags().StringVarP(&f.output, "output", "o", "", "wide, json or yaml")
	c.Flags().BoolVar(&f.rules, "rules", false, "show the decision step by step, with each endpoint's share")
	c.Flags().BoolVar(&f.kernel, "kernel", true, "compare with what the kernel holds, on nodes whose agents answer; without this flag, not on nodes with very many Services, of which all objects are read")
	c.Flags().StringVarP(&f.method, "request", "X", "GET", "method of the request, for a URL")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, `header of the request, such as "Version: two", for a URL; may be repeated`)
	f.agent.addMeaning(c.Flags())
	f.agent.addServiceCIDRs(c.Flags())
	return c
}

// report answers the question.
func (f *explainFlags) report(cmd *cobra.Command, typed string) (*explain.Report, error) {
	if !slices.Contains([]string{"", "wide", "json", "yaml"}, f.output) {
		return nil, fmt.Errorf("--output: %q must be wide, json or yaml", f.output)
	}
	q, err := explain.ParseQuestion(typed, f.from, f.objects.namespace)
	if err != nil {
		return nil, err
	}
	config, err := f.agent.config()
	if err != nil {
		return nil, err
	}
	objects, err := f.objects.readFor(cmd.Context(), q)
	if err != nil {
		return nil, err
	}
	q.Node = f.node
	find := sync.OnceValue(func() []agentlink.Found { return f.objects.agents(cmd.Context(), oneNode(q, objects)) })
	addNodes(objects, find)
	report, err := explain.FromObjects(q, objects, config.Compile, f.objects.asker(cmd.Context(), find))
	if err == nil && (len(report.Views) > 0 || report.Outcome == explain.OutcomeUnknown) && len(f.objects.files) == 0 {
		report.NotChecked = append(report.NotChecked, agentlink.Missing(find())...)
	}
	if err == nil && f.kernel && report.Service != nil && len(report.Views) > 0 && len(f.objects.files) == 0 {
		addKernels(cmd.Context(), report, find(), cmp.Or(q.Node, report.From.Node), cmd.Flags().Changed("kernel"))
	}
	return report, err
}

// oneNode is the node that a question is about; "" for all.
func oneNode(q explain.Question, o *explain.Objects) string {
	if q.Node != "" {
		return q.Node
	}
	from, err := o.Locate(q.From, false)
	if err != nil {
		return ""
	}
	return from.Node
}

// text writes the report for people.
func (f *explainFlags) text(r *explain.Report) func(io.Writer) error {
	return func(out io.Writer) error {
		if f.rules {
			return r.WriteRules(out)
		}
		return r.WriteText(out, f.output == "wide")
	}
}

// writeReport writes a report as JSON or YAML, or, in any other format, as text does.
func writeReport(out io.Writer, format string, report any, text func(io.Writer) error) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	case "yaml":
		data, err := yaml.Marshal(report)
		if err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		_, err = out.Write(data)
		return err
	}
	return text(out)
}
