//go:build !agentonly

package lab

import (
	"context"
	"strings"

	"github.com/fairway-net/fairway/cmd/complete"
	"github.com/fairway-net/fairway/cmd/kubectl"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

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
		return complete.Starting(labs, typed), cobra.ShellCompDirectiveNoFileComp
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
	targets = append(targets, complete.NamesAt(client, "", func(ctx context.Context, api kubernetes.Interface, _ string) (runtime.Object, error) {
		return api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	})...)
	ctx, cancel := context.WithTimeout(context.Background(), complete.Timeout)
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
		return complete.Starting(labs, typed), cobra.ShellCompDirectiveNoFileComp
	}
	return kubectl.Complete(rest, typed, lab.Kubeconfig(name))
}
