//go:build !agentonly

package kubectl

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	"github.com/fairway-net/fairway/cmd/requests"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	"k8s.io/kubectl/pkg/cmd/util"

	"github.com/fairway-net/fairway/apiserver"
	_ "github.com/fairway-net/fairway/internal/kubectlwords"
	"github.com/fairway-net/fairway/kube/balance"
	"github.com/fairway-net/fairway/kube/credentials"
)

// kubectlVersion is what the kubectl library calls its version, which only a
// release build of Kubernetes sets; without one `kubectl version` fails. The
// library's SetDynamicVersion refuses another minor release than the linker was
// told, and a plain `go build` tells it none.
//
//go:linkname kubectlVersion k8s.io/component-base/version.dynamicGitVersion
var kubectlVersion atomic.Value

func Kubectl() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl",
		Short:              "The built-in kubectl; by default it uses this machine's server",
		DisableFlagParsing: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return Complete(args, typed, ownKubeconfig(args))
		},
		RunE: func(c *cobra.Command, args []string) error {
			return Run(c.Context(), args)
		},
	}
}

// configure prepares a client's configuration, with the servers that are kept beside a
// kubeconfig of this machine, "" for another one. Requests aren't held back here: a server
// has priority and fairness for that, and at the library's five requests a second a list of
// 100,000 objects, which comes in pages of 500, takes 40 seconds of waiting.
func configure(config *rest.Config, file string) *rest.Config {
	config.QPS = -1
	if file == "" {
		return config
	}
	if err := balance.AttachFor(config, file); err != nil {
		slog.Warn("using the API server of the kubeconfig", "error", err)
	}
	return config
}

// Run behaves as kubectl does, including its way of ending the process.
func Run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "convert" {
		convert := requests.Convert()
		convert.SetArgs(args[1:])
		return convert.ExecuteContext(ctx)
	}
	util.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			fmt.Fprintln(os.Stderr, strings.TrimSuffix(explainNoServer(requests.ExplainUnserved(message)), "\n"))
		}
		os.Exit(code)
	})
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-v") || strings.HasPrefix(arg, "--v=") }) {
		utilruntime.ErrorHandlers = nil // what ends kubectl is said once; these log it on each attempt
	}
	kubectlVersion.Store(apiserver.KubernetesVersion)
	// Main keeps the signal from ending the process; kubectl expects that.
	stop := context.AfterFunc(ctx, func() { os.Exit(130) })
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50)
	file := ownKubeconfig(args)
	if file != "" {
		flags.KubeConfig = &file
	}
	flags = flags.WithWrapConfigFn(func(config *rest.Config) *rest.Config { return configure(config, file) })
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

// noServer is what kubectl says where no kubeconfig names a server.
const noServer = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"

// explainNoServer says what to do where there is no kubeconfig.
func explainNoServer(message string) string {
	return strings.ReplaceAll(message, noServer, "no API to ask: there is no kubeconfig. Give --kubeconfig FILE or set KUBECONFIG; "+
		"root needs none on a machine with a server of Fairway, or use fairway lab kubectl for a lab")
}

// ownKubeconfig is the kubeconfig of this machine's server, if the arguments name
// no other and the user may read it.
func ownKubeconfig(args []string) string {
	named := func(arg string) bool { return arg == "--kubeconfig" || strings.HasPrefix(arg, "--kubeconfig=") }
	if slices.ContainsFunc(args, named) {
		return ""
	}
	return credentials.OfServer()
}
