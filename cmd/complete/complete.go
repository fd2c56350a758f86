// Package complete is completion of command lines: the values of flags and the names of objects.
package complete

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/fairway-net/fairway/agent"
	"github.com/fairway-net/fairway/dataplane"
	"github.com/fairway-net/fairway/model"
)

// Timeout is how long the shell waits for an API's names.
const Timeout = 3 * time.Second

// lister lists what a word of a command line may be.
type lister func(c *cobra.Command) []string

// Add completes the arguments and the flags of a command and of all
// below it, unless a command does so itself.
func Add(c *cobra.Command) {
	for _, sub := range c.Commands() {
		Add(sub)
	}
	if list := argumentNames[c.Name()]; list != nil && c.ValidArgsFunction == nil {
		c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 { // each of them takes one
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return Starting(list(c), typed), cobra.ShellCompDirectiveNoFileComp
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		list := flagValuesOf(f)
		if _, exists := c.GetFlagCompletionFunc(f.Name); list == nil || exists {
			return
		}
		complete := func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeList(list(c), typed)
		}
		if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
			panic(err) // the flag is there, and has none
		}
	})
}

// argumentNames are of commands that take the name of something.
var argumentNames = map[string]lister{
	"explain": prefixed("svc/", serviceNames), "doctor": prefixed("svc/", serviceNames), "dump": prefixed("svc/", serviceNames), "trace": prefixed("svc/", serviceNames),
	"publish": serviceNames, "drain": nodeNames, "revoke": nodeNames,
}

// flagNames are of flags that take one of few values, or the name of something.
var flagNames = map[string]lister{
	"mode":              modeNames,
	"iptables-variant":  fixed("nft", "legacy"),
	"scheduler":         schedulerNames,
	"ipvs-scheduler":    schedulerNames,
	"logging-format":    fixed("text", "json"),
	"detect-local-mode": fixed("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"),
	"router":            fixed("frr", "bird"),
	"type":              fixed("ClusterIP", "NodePort", "LoadBalancer"),
	"protocol":          fixed("TCP", "UDP", "SCTP"),
	"fail-on":           fixed("proved", "likely", "possible"),
	"from":              whoAsks,
	"node":              nodeNames,
	"service":           serviceNames,
	"namespace":         namespaceNames,
}

// flagValuesOf is what completes a flag, nil for nothing.
func flagValuesOf(f *pflag.Flag) lister {
	if f.Name == "output" { // its text names the formats
		formats := strings.FieldsFunc(f.Usage, func(r rune) bool { return r == ' ' || r == ',' || r == ':' })
		return fixed(slices.DeleteFunc(formats, func(word string) bool {
			return !slices.Contains([]string{"wide", "json", "yaml"}, word)
		})...)
	}
	return flagNames[f.Name]
}

// completeList completes the last one of a list with commas.
func completeList(names []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	for i := range names {
		names[i] = before + names[i]
	}
	return Starting(names, typed), cobra.ShellCompDirectiveNoFileComp
}

func Starting(names []string, typed string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, typed) })
}

func fixed(values ...string) lister {
	return func(*cobra.Command) []string { return slices.Clone(values) }
}

func prefixed(prefix string, names lister) lister {
	return func(c *cobra.Command) []string {
		list := names(c)
		for i := range list {
			list[i] = prefix + list[i]
		}
		return list
	}
}

func modeNames(*cobra.Command) []string {
	names := []string{agent.AutoMode}
	for _, kind := range dataplane.Kinds() {
		names = append(names, kind.Name)
	}
	return names
}

func schedulerNames(*cobra.Command) []string {
	var names []string
	for _, s := range model.Schedulers() {
		names = append(names, string(s))
	}
	return names
}

func whoAsks(c *cobra.Command) []string {
	return append(prefixed("node/", nodeNames)(c), prefixed("pod/", podNames)(c)...)
}

func nodeNames(c *cobra.Command) []string {
	return namesOf(c, func(ctx context.Context, api kubernetes.Interface, _ string) (runtime.Object, error) {
		return api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	})
}

func podNames(c *cobra.Command) []string {
	return namesOf(c, func(ctx context.Context, api kubernetes.Interface, namespace string) (runtime.Object, error) {
		return api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	})
}

func serviceNames(c *cobra.Command) []string {
	return namesOf(c, func(ctx context.Context, api kubernetes.Interface, namespace string) (runtime.Object, error) {
		return api.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	})
}

func namespaceNames(c *cobra.Command) []string {
	return namesOf(c, func(ctx context.Context, api kubernetes.Interface, _ string) (runtime.Object, error) {
		return api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	})
}
