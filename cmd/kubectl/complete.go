//go:build !agentonly

package kubectl

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
)

// Complete has kubectl complete its own command line. The file is of the
// kubeconfig to use, "" for kubectl's own choice.
func Complete(args []string, typed, file string) ([]string, cobra.ShellCompDirective) {
	flags := genericclioptions.NewConfigFlags(true)
	if file != "" {
		flags.KubeConfig = &file
	}
	var out bytes.Buffer
	command := cmd.NewKubectlCommand(cmd.KubectlOptions{
		ConfigFlags: flags, IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: &out, ErrOut: &bytes.Buffer{}},
	})
	line := append([]string{cobra.ShellCompRequestCmd}, args...)
	command.SetArgs(append(line, typed))
	command.SetOut(&out)
	command.SetErr(&bytes.Buffer{})
	if err := command.Execute(); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return readCompletions(out.String())
}

// readCompletions reads what cobra prints for shells: a line for each, and a last
// one with a colon and the directive.
func readCompletions(text string) ([]string, cobra.ShellCompDirective) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	number, ok := strings.CutPrefix(lines[len(lines)-1], ":")
	directive, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:len(lines)-1], cobra.ShellCompDirective(directive)
}
