package diagnosis

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/diagnose/doctor"
	"github.com/fairway-net/fairway/diagnose/examine"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/internal/version"
)

// doctorFlags are the flags of doctor, as typed.
type doctorFlags struct {
	explainFlags
	failOn string
	code   string
	domain string
	all    bool
}

func Doctor() *cobra.Command {
	f := doctorFlags{explainFlags: explainFlags{agent: config.ForMode("nftables")}}
	c := &cobra.Command{
		Use:   "doctor [svc/NAME | ADDRESS[:PORT]]",
		Short: "Find out why a Service doesn't answer, or what is wrong with this machine",
		Long: `Find out why a Service doesn't answer: wrong selectors and ports, endpoints that
aren't ready or don't listen, policies, names, firewalls. Each cause has a code
and a fix. Every node that a packet may pass is looked at, as far as its agent answers.

Without a Service, this machine is looked at, or, where it is no node, the nodes whose
agents answer; with --node, that node, and with -n, the Services of a namespace. With
-f, all Services of the files or the bundle; with --node, that node of the bundle.
With -f and --with-cluster, what would be wrong once the files are applied and isn't now.

The exit code is 0 if nothing was found that is at least as sure as --fail-on, 1
if something was, and 2 if doctor could not run.`,
		Example: `  fairway doctor
  fairway doctor svc/web
  fairway doctor svc/web --from pod/client-a
  fairway doctor -A --fail-on proved
  fairway doctor -f manifests/ --with-cluster
  fairway doctor -f manifests/ -o sarif > doctor.sarif
  fairway doctor --explain FW117`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.code != "" {
				text, err := doctor.Explain(f.code)
				if err != nil {
					return exit.Error{Code: 2, Err: fmt.Errorf("--explain: %w", err)}
				}
				_, err = io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			failOn, err := doctor.ParseGrade(f.failOn)
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			report, err := f.examine(cmd, args)
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			if err := f.write(cmd.OutOrStdout(), report, failOn); err != nil {
				return err
			}
			if worst, found := report.Worst(); found && worst >= failOn {
				return exit.Error{Code: 1}
			}
			return nil
		},
	}
	f.addFiles(c)
	c.Flags().StringVar(&f.from, "from", "", "the client: pod/NAME, node/NAME or an IP address")
	c.Flags().StringVar(&f.node, "node", "", "the node that the packet reaches; default every node")
	c.Flags().StringVarP(&f.output, "output", "o", "", "json, yaml, or for other programs sarif or junit")
	c.Flags().StringVar(&f.failOn, "fail-on", doctor.Likely.String(), "the lowest grade that makes the exit code 1: note, likely or proved")
	c.Flags().BoolVarP(&f.all, "all", "A", false, "examine every Service, from the API alone; with -n, those of a namespace")
	c.Flags().StringVar(&f.code, "explain", "", "explain a code in full")
	c.Flags().StringVar(&f.domain, "cluster-domain", "cluster.local", "domain of the cluster's names")
	f.agent.AddServiceCIDRs(c.Flags())
	return c
}

// judged is what doctor reports, of one Service or of all.
type judged interface {
	WriteText(io.Writer) error
	Worst() (grade doctor.Grade, found bool)
	Outcomes() doctor.Outcomes
}

// write writes the report in the format that was asked for. Where objects are of files, formats
// for other programs say of which lines.
func (f *doctorFlags) write(out io.Writer, report judged, failOn doctor.Grade) error {
	if f.output != "sarif" && f.output != "junit" {
		return writeReport(out, f.output, report, report.WriteText)
	}
	outcomes := report.Outcomes()
	outcomes.Places = manifest.Places(f.objects.Files...)
	if f.output == "sarif" {
		return outcomes.WriteSARIF(out, version.Version)
	}
	return outcomes.WriteJUnit(out, failOn)
}

// examine examines a Service, all of them, or this machine.
func (f *doctorFlags) examine(cmd *cobra.Command, args []string) (judged, error) {
	if err := checkOutput(f.output, "json", "yaml", "sarif", "junit"); err != nil {
		return nil, err
	}
	x, err := f.examiner()
	if err != nil {
		return nil, err
	}
	if f.joined {
		return f.proposed(cmd, args, x)
	}
	switch {
	case f.all && len(args) > 0:
		return nil, errors.New("--all: give no Service beside it")
	case (f.all || len(args) == 0 && f.node == "") && cmd.Flags().Changed("namespace"):
		return x.All(cmd.Context(), f.objects.Namespace)
	case f.all, len(args) == 0 && len(f.objects.Files) > 0 && f.node == "": // files don't tell of this machine
		return x.All(cmd.Context(), "")
	case len(args) == 0:
		return x.Machine(cmd.Context())
	}
	return x.Service(cmd.Context(), args[0])
}

// proposed examines what runs as it would be with the manifests applied.
func (f *doctorFlags) proposed(cmd *cobra.Command, args []string, x *examine.Examiner) (judged, error) {
	if len(args) > 0 {
		if _, err := f.join(cmd); err != nil {
			return nil, err
		}
		return x.Service(cmd.Context(), args[0])
	}
	p, err := f.proposal(cmd)
	if err != nil {
		return nil, err
	}
	namespace := ""
	if cmd.Flags().Changed("namespace") {
		namespace = f.objects.Namespace
	}
	return x.Proposed(cmd.Context(), p, namespace)
}

// examiner examines as the flags say.
func (f *doctorFlags) examiner() (*examine.Examiner, error) {
	x, err := f.explainFlags.examiner()
	x.Domain = f.domain
	return x, err
}
