package diagnosis

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/compile"
	"github.com/fairway-net/fairway/config"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/diagnose/requests"
	"github.com/fairway-net/fairway/internal/manifest"
	"github.com/fairway-net/fairway/model"
)

func Render() *cobra.Command {
	var files []string
	var objects, table, isL7 bool
	var part string
	role := config.ForMode("nftables")
	c := &cobra.Command{
		Use:   "render -f FILES --mode MODE",
		Short: "Print the rules that a mode would create from manifests; changes nothing",
		Long: `Print what a data plane would put into the kernel of a node, as input for that
mode's usual tool. Nothing is touched and no privilege is needed. Where a mode
has several tools, --part prints the input of one:

  fairway render -f web.yaml --mode iptables --part iptables.rules | iptables-restore --test

The manifests hold Services, their EndpointSlices or Endpoints, and Nodes, which
lend their addresses to node ports. The output of a cluster will do:

  kubectl get services,endpointslices,nodes -A -o yaml | fairway render -f - --mode iptables

What only a cluster gives, cluster IPs, node ports and the addresses of pods, is
made up where a manifest has none, and each such example is named.

With --l7, print the table by which requests are answered instead: of Gateways,
their routes and policies, Ingresses, Services, EndpointSlices and Secrets.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if isL7 {
				return renderL7(cmd.OutOrStdout(), cmd.ErrOrStderr(), files)
			}
			t, mistakes, err := compileFiles(role, files, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := printTable(cmd.OutOrStdout(), t, table, objects, part, role); err != nil {
				return err
			}
			if mistakes > 0 {
				return fmt.Errorf("the manifests have %d mistakes: see above; what has them is left out", mistakes)
			}
			return nil
		},
	}
	c.Flags().StringSliceVarP(&files, "filename", "f", nil, `manifests: files, folders, or "-" for standard input`)
	c.Flags().BoolVar(&objects, "objects", false, "print the named objects instead of input for a tool")
	c.Flags().StringVar(&part, "part", "", "print this part only, as named in the headings of the whole")
	c.Flags().BoolVar(&table, "table", false, "print the model instead: what goes where, in no mode's terms")
	c.Flags().BoolVar(&isL7, "l7", false, "print the table of Gateways, routes and Ingresses instead: which request goes where")
	c.Flags().StringVar(&role.NodeName, "node", "", "the Node to render for; the first in the manifests without this")
	role.AddMode(c.Flags())
	role.AddMeaning(c.Flags())
	role.AddServiceCIDRs(c.Flags())
	if err := c.MarkFlagRequired("filename"); err != nil {
		panic("render has no --filename: " + err.Error())
	}
	return c
}

// renderL7 prints what Gateways, routes and Ingresses mean, and what can't be.
func renderL7(w, warnings io.Writer, files []string) error {
	out, ignored, given, err := requests.FromFiles(files)
	if err != nil {
		return err
	}
	for _, p := range out.Problems {
		fmt.Fprintf(warnings, "fairway: %s %s: %s\n", p.Kind, p.Object, p.Message)
	}
	for _, one := range given {
		fmt.Fprintf(warnings, "fairway: %s: not among the manifests, taken as given\n", one)
	}
	for _, one := range ignored {
		fmt.Fprintf(warnings, "fairway: %s: not used\n", one)
	}
	_, err = io.WriteString(w, out.Table.String())
	return err
}

// render compiles manifests into a table. It returns how many mistakes they have.
func compileFiles(role *config.Agent, files []string, warnings io.Writer) (*model.Table, int, error) {
	set, err := manifest.Read(files...)
	if err != nil {
		return nil, 0, err
	}
	node, err := set.Node(role.NodeName)
	if err != nil {
		return nil, 0, err
	}
	config, err := role.Config()
	if err != nil {
		return nil, 0, err
	}
	for _, ignored := range set.Ignored {
		set.Warnings = append(set.Warnings, ignored+": not used")
	}
	for _, line := range slices.Concat(set.Warnings, set.Sample(config.Compile.ServiceCIDRs), set.Mistakes) {
		fmt.Fprintf(warnings, "fairway: %s\n", line)
	}
	return compile.All(config.Compile, node, set.Services, set.Slices), len(set.Mistakes), nil
}

// printTable prints the model, or what the mode makes of it.
func printTable(out io.Writer, t *model.Table, table, objects bool, part string, role *config.Agent) error {
	if table {
		_, err := io.WriteString(out, t.String())
		return err
	}
	config, err := role.Config()
	if err != nil {
		return err
	}
	return printPlane(out, t, objects, part, config)
}

func printPlane(out io.Writer, t *model.Table, objects bool, part string, config agent.Config) error {
	if config.Mode == "auto" { // what it tries first, since no machine is looked at
		config.Mode = dataplane.Kinds()[0].Name
	}
	kind, err := dataplane.Find(config.Mode)
	if err != nil {
		return err
	}
	if objects || kind.Script == nil {
		list, err := kind.Render(t, config.Plane)
		if err != nil {
			return fmt.Errorf("render %s: %w", kind.Name, err)
		}
		for _, o := range list {
			fmt.Fprintln(out, o)
		}
		return nil
	}
	scripts, err := kind.Script(t, config.Plane)
	if err != nil {
		return fmt.Errorf("render %s: %w", kind.Name, err)
	}
	names := slices.Sorted(maps.Keys(scripts))
	if part != "" {
		script, ok := scripts[part]
		if !ok {
			return fmt.Errorf("--part: %q must be one of %s", part, strings.Join(names, ", "))
		}
		fmt.Fprint(out, script)
		return nil
	}
	for _, name := range names {
		if len(names) > 1 {
			fmt.Fprintf(out, "# ---- %s ----\n", name)
		}
		fmt.Fprint(out, scripts[name])
	}
	return nil
}
