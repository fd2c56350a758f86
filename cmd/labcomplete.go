//go:build !agentonly

package cmd

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/cmd"

	"github.com/fairway-net/fairway/lab"
)

// completeLabName completes --name of a command that is about a lab that exists.
func completeLabName(c *cobra.Command) {
	if c.Flags().Lookup("name") == nil || c.Name() == "up" || c.Name() == "demo" || c.Name() == "echo" {
		return
	}
	names := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		labs, err := lab.List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return starting(labs, typed), cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("name", names); err != nil {
		panic(err) // the flag is there, and has none
	}
}

// labTargets are what `fairway lab exec` enters in a lab; pods of the namespace
// default bear their name alone.
func labTargets(name string) []string {
	targets := []string{"client", "underlay"}
	client, err := lab.Client(name)
	if err != nil {
		return targets
	}
	targets = append(targets, namesAt(client, "", func(ctx context.Context, api kubernetes.Interface, _ string) (runtime.Object, error) {
		return api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	})...)
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return targets
	}
	for _, p := range pods.Items {
		target := p.Namespace + "/" + p.Name
		targets = append(targets, strings.TrimPrefix(target, metav1.NamespaceDefault+"/"))
	}
	return targets
}

// completeLabKubectl completes kubectl's command line with a lab's kubeconfig.
func completeLabKubectl(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, rest, err := labName(args)
	if err != nil { // after --name
		labs, err := lab.List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return starting(labs, typed), cobra.ShellCompDirectiveNoFileComp
	}
	return completeKubectl(rest, typed, lab.Kubeconfig(name))
}

// completeKubectl has kubectl complete its own command line. The file is of the
// kubeconfig to use, "" for kubectl's own choice.
func completeKubectl(args []string, typed, file string) ([]string, cobra.ShellCompDirective) {
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
