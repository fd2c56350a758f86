//go:build !agentonly

package requests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairway-net/fairway/internal/oldapi"
)

// Convert is what kubectl's plugin of that name is: manifests of versions
// that are served no more, in their present form.
func Convert() *cobra.Command {
	var files []string
	c := &cobra.Command{
		Use:           "convert -f FILE",
		Short:         "Convert manifests of old API versions to current ones",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return errors.New("convert: no manifest given; give -f FILE, or -f - for standard input")
			}
			for _, file := range files {
				if err := convertFile(file, cmd.InOrStdin(), cmd.OutOrStdout()); err != nil {
					return fmt.Errorf("convert %s: %w", file, err)
				}
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "file of manifests, YAML or JSON; - for standard input")
	return c
}

func convertFile(file string, in io.Reader, out io.Writer) error {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	return oldapi.ConvertAll(in, out)
}

// unserved is what kubectl says of a kind that isn't served.
var unserved = regexp.MustCompile(`no matches for kind "([^"]+)" in version "([^"]+)"(\s*ensure CRDs are installed first)?`)

// ExplainUnserved replaces what kubectl says of kinds of Kubernetes that aren't
// served here, for which no CustomResourceDefinition is missing.
func ExplainUnserved(message string) string {
	return unserved.ReplaceAllStringFunc(message, func(match string) string {
		parts := unserved.FindStringSubmatch(match)
		kind, version := parts[1], parts[2]
		if present := oldapi.Present(version, kind); present != "" {
			return fmt.Sprintf("%s %s is %s today: write it in that form with fairway kubectl convert -f FILE", version, kind, present)
		}
		gv, err := schema.ParseGroupVersion(version)
		if err != nil || !scheme.Scheme.IsGroupRegistered(gv.Group) {
			return match
		}
		return fmt.Sprintf("fairway does not serve %s (%s): nothing here would act on it", kind, version)
	})
}
