//go:build !agentonly

package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/fairway-net/fairway/apiserver"
	"github.com/fairway-net/fairway/kube/balance"
)

// kubectlVersion is what the kubectl library calls its version, which only a
// release build of Kubernetes sets; without one `kubectl version` fails.
//
//go:linkname kubectlVersion k8s.io/component-base/version.dynamicGitVersion
var kubectlVersion atomic.Value

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "kubectl, linked in; uses this machine's server unless told otherwise",
		DisableFlagParsing: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeKubectl(args, typed, ownKubeconfig(args))
		},
		RunE: func(c *cobra.Command, args []string) error {
			return runKubectl(c.Context(), args)
		},
	}
}

// runKubectl behaves as kubectl does, including its way of ending the process.
func runKubectl(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "convert" {
		convert := convertCommand()
		convert.SetArgs(args[1:])
		return convert.ExecuteContext(ctx)
	}
	util.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(explainUnserved(message), "\n"))
		}
		os.Exit(code)
	})
	kubectlVersion.Store(apiserver.KubernetesVersion)
	// Main keeps the signal from ending the process; kubectl expects that.
	stop := context.AfterFunc(ctx, func() { os.Exit(130) })
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	if file := ownKubeconfig(args); file != "" {
		flags.KubeConfig = &file
		flags = flags.WithWrapConfigFn(func(config *rest.Config) *rest.Config {
			if err := balance.AttachFor(config, file); err != nil {
				slog.Warn("going on with the server of the kubeconfig", "error", err)
			}
			return config
		})
	}
	// Plugins and completion look at the arguments as kubectl would see them.
	os.Args = append([]string{"kubectl"}, args...)
	command := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		PluginHandler: cmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     os.Args,
		ConfigFlags:   flags.WithWarningPrinter(streams),
		IOStreams:     streams,
	})
	command.SetArgs(args)
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
	return nil
}

// ownKubeconfig is the kubeconfig of this machine's server, if the user names
// no other and may read it.
func ownKubeconfig(args []string) string {
	named := func(arg string) bool { return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=") }
	if os.Getenv("KUBECONFIG") != "" || slices.ContainsFunc(args, named) {
		return ""
	}
	file := apiserver.AdminKubeconfig(apiserver.DefaultConfig().DataDir)
	if unix.Access(file, unix.R_OK) != nil {
		return ""
	}
	return file
}
