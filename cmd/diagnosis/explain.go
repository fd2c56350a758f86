package diagnosis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/source"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/bundle"
	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/examine"
	"github.com/fairway-net/fairway/diagnose/explain"
	"github.com/fairway-net/fairway/diagnose/proposal"
	"github.com/fairway-net/fairway/diagnose/requests"
)

// explainFlags are the flags of explain, as typed.
type explainFlags struct {
	objects collect.Source
	agent   *config.Agent
	from    string
	node    string
	output  string
	rules   bool
	kernel  bool
	method  string
	headers []string
	joined  bool // the manifests, with what runs
}

func Explain() *cobra.Command {
	f := explainFlags{agent: config.ForMode("nftables")}
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
  fairway explain -f manifests/ --with-cluster svc/web    # as it would be
  fairway explain https://shop.example.com/cart -X POST -H 'Version: two'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if requests.IsURL(args[0]) {
				question := requests.Question{URL: args[0], Method: f.method, Headers: f.headers}
				answered, err := f.explainRequest(cmd, question)
				switch {
				case err != nil:
					return exit.Error{Code: 2, Err: err}
				case !answered:
					return exit.Error{Code: 1}
				}
				return nil
			}
			report, err := f.report(cmd, args[0])
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			if err := writeReport(cmd.OutOrStdout(), f.output, report, f.text(report)); err != nil {
				return err
			}
			if code := report.ExitCode(); code != 0 {
				return exit.Error{Code: code}
			}
			return nil
		},
	}
	f.addFiles(c)
	c.Flags().StringVar(&f.from, "from", "", "the client: pod/NAME, node/NAME or an IP address; default a pod, a node and somebody outside")
	c.Flags().StringVar(&f.node, "node", "", "the node that the packet reaches; without it, the node of --from, or every node")
	c.Flags().StringVarP(&f.output, "output", "o", "", "wide, json or yaml")
	c.Flags().BoolVar(&f.rules, "rules", false, "show the decision step by step, with each endpoint's share")
	c.Flags().BoolVar(&f.kernel, "kernel", true, "compare with what the kernel holds, on nodes whose agents answer; without this flag, not on nodes with very many Services, of which all objects are read")
	c.Flags().StringVarP(&f.method, "request", "X", "GET", "method of the request, for a URL")
	c.Flags().StringArrayVarP(&f.headers, "header", "H", nil, `header of the request, such as "Version: two", for a URL; may be repeated`)
	f.agent.AddMeaning(c.Flags())
	f.agent.AddServiceCIDRs(c.Flags())
	return c
}

// addFiles adds the flags that say of which objects the question is.
func (f *explainFlags) addFiles(c *cobra.Command) {
	source.AddOrFiles(c.Flags(), &f.objects)
	c.Flags().BoolVar(&f.joined, "with-cluster", false, "with -f: the manifests joined with what runs, as it would be once they are applied")
}

// proposal joins the manifests with what runs.
func (f *explainFlags) proposal(cmd *cobra.Command) (*proposal.Proposal, error) {
	if len(f.objects.Files) == 0 {
		return nil, errors.New("--with-cluster: name the manifests with --filename")
	}
	return joined(cmd.Context(), &f.objects, f.objects.Files)
}

// joined are manifests joined with what runs at a source's API.
func joined(ctx context.Context, source *collect.Source, files []string) (*proposal.Proposal, error) {
	if i := slices.IndexFunc(files, bundle.IsName); i >= 0 {
		return nil, fmt.Errorf("--filename: %s: a bundle can't be joined with a cluster", files[i])
	}
	api, err := source.Config()
	if err != nil {
		return nil, err
	}
	return proposal.Read(ctx, source.WithFirstAnswerTimeout(api), files, source.Namespace)
}

// join has the question asked of the manifests joined with what runs. Objects that the server would
// refuse are named: they are left out.
func (f *explainFlags) join(cmd *cobra.Command) (*proposal.Proposal, error) {
	p, err := f.proposal(cmd)
	if err != nil {
		return nil, err
	}
	for _, r := range p.Refused {
		fmt.Fprintf(cmd.ErrOrStderr(), "fairway: left out: %s: REFUSED: %s\n", r.Object, r.Reason)
	}
	f.objects.Joined = p.After.Objects
	return p, nil
}

// explainRequest says what becomes of a request.
func (f *explainFlags) explainRequest(cmd *cobra.Command, question requests.Question) (answered bool, err error) {
	if slices.ContainsFunc(f.objects.Files, bundle.IsName) {
		return false, errors.New("--filename: a bundle has no Gateways and Ingresses: ask about svc/NAME or an address")
	}
	if !f.joined {
		return requests.Explain(cmd.Context(), cmd.OutOrStdout(), question, &f.objects)
	}
	p, err := f.join(cmd)
	if err != nil {
		return false, err
	}
	return requests.ExplainObjects(cmd.OutOrStdout(), question, p.After.Requests, p.After.Objects)
}

// examiner examines as the flags say.
func (f *explainFlags) examiner() (*examine.Examiner, error) {
	config, err := f.agent.Config()
	return &examine.Examiner{Source: &f.objects, From: f.from, Node: f.node, Compile: config.Compile}, err
}

// report answers the question.
func (f *explainFlags) report(cmd *cobra.Command, typed string) (*explain.Report, error) {
	if err := checkOutput(f.output, "wide", "json", "yaml"); err != nil {
		return nil, err
	}
	x, err := f.examiner()
	if err != nil {
		return nil, err
	}
	if f.joined {
		if _, err := f.join(cmd); err != nil {
			return nil, err
		}
	}
	kernels := examine.KernelsOfFewServices
	switch {
	case !f.kernel:
		kernels = examine.NoKernels
	case cmd.Flags().Changed("kernel"):
		kernels = examine.EveryKernel
	}
	return x.Explain(cmd.Context(), typed, kernels)
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

// checkOutput refuses a format that isn't one of these.
func checkOutput(output string, formats ...string) error {
	if output == "" || slices.Contains(formats, output) {
		return nil
	}
	last := len(formats) - 1
	return fmt.Errorf("--output: %q must be %s or %s", output, strings.Join(formats[:last], ", "), formats[last])
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
