package requests

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/fairway-net/fairway/cmd/exit"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/ingress/assess"
	"github.com/fairway-net/fairway/ingress/compile"
)

func ingressAssessCommand() *cobra.Command {
	f := ingressFlags{}
	output := ""
	c := &cobra.Command{
		Use:   "assess",
		Short: "Say what of Ingresses works as it did with ingress-nginx",
		Long: `Say of each Ingress which annotations work as they did with ingress-nginx, what is
otherwise and how, and what isn't done. The score is from 0 to 100: 100 is an
Ingress that works as it did, 0 one whose requests would be refused. Nothing is
changed, and nothing has to be installed.

Secrets and ConfigMaps are not read: certificates are taken as given.

The exit code is 1 if any Ingress would not work as it did.`,
		Example: `  fairway ingress assess --all-namespaces --class nginx
  fairway ingress assess -f manifests/ -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return exit.Error{Code: 2, Err: fmt.Errorf("--output: %q: must be json", output)}
			}
			list, services, err := f.read(cmd.Context())
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			objects := &compile.Objects{Ingresses: list, Services: services, Secrets: map[types.NamespacedName]*corev1.Secret{}, ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{}}
			if _, err := assess.Complete(objects); err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			reports := assess.Assess(objects)
			if output == "json" {
				to := json.NewEncoder(cmd.OutOrStdout())
				to.SetIndent("", "  ")
				if err := to.Encode(reports); err != nil {
					return exit.Error{Code: 2, Err: err}
				}
			} else {
				writeReports(cmd.OutOrStdout(), reports)
			}
			for i := range reports {
				if reports[i].Score < 100 {
					return exit.Error{Code: 1}
				}
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.StringSliceVarP(&f.objects.Files, "filename", "f", nil, `manifests instead of an API: files, folders, or "-" for standard input`)
	flags.StringVar(&f.objects.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	flags.StringVarP(&f.objects.Namespace, "namespace", "n", corev1.NamespaceDefault, "namespace whose Ingresses the API is asked for")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "ask for those of all namespaces")
	flags.StringVar(&f.class, "class", "", "only Ingresses of this class; all without it")
	flags.StringVarP(&output, "output", "o", "", "json; a text for people without it")
	return c
}

// writeReports writes what becomes of each Ingress, and a summary.
func writeReports(w io.Writer, reports []assess.Report) {
	whole, sum := 0, 0
	for i := range reports {
		r := &reports[i]
		if sum += r.Score; r.Score == 100 {
			whole++
		}
		fmt.Fprintf(w, "%3d  Ingress %s\n", r.Score, r.Ingress)
		for _, name := range r.Works {
			fmt.Fprintf(w, "       works      %s\n", name)
		}
		for _, line := range r.Otherwise {
			fmt.Fprintf(w, "       otherwise  %s\n", line)
		}
		for _, line := range r.Not {
			fmt.Fprintf(w, "       not        %s\n", line)
		}
		if r.Closed {
			fmt.Fprintln(w, "       closed     requests get 500: what protects the Ingress isn't done")
		}
	}
	fmt.Fprintf(w, "\n%d of %d Ingresses work as they did; the score of all is %d\n", whole, len(reports), sum/len(reports))
}
