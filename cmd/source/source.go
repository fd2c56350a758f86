// Package source is the flags of commands that ask an API and agents.
package source

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairway-net/fairway/diagnose/collect"
)

// Add adds the flags of commands that ask an API and agents.
func Add(flags *pflag.FlagSet, s *collect.Source) {
	s.Answers = &collect.Answers{}
	s.Say = func(line string) { fmt.Fprintf(os.Stderr, "fairway: %s\n", line) }
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", collect.KubeconfigHelp)
	flags.StringSliceVar(&s.Sockets, "agent-socket", nil, "sockets of agents to ask, wildcards allowed; default this machine's own and, with a lab's kubeconfig, those of its nodes")
	flags.StringVarP(&s.Namespace, "namespace", "n", corev1.NamespaceDefault, "default namespace of names")
}

// AddOrFiles adds those of commands that do with manifests, too.
func AddOrFiles(flags *pflag.FlagSet, s *collect.Source) {
	flags.StringSliceVarP(&s.Files, "filename", "f", nil, `manifests instead of an API: files, folders, or "-" for standard input; or a bundle that fairway bundle wrote`)
	Add(flags, s)
}
