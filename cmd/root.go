// Package cmd is the tree of commands: their one list, their help and examples, and how the
// process ends. A command is in the folder of its family, and parses and calls; its flags of
// roles are in package config, its behaviour is elsewhere.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/cmd/complete"
	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/manual"
	"github.com/fairway-net/fairway/cmd/privilege"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/help"
	"github.com/fairway-net/fairway/internal/version"
)

// Main runs the command named on the command line and returns the exit code:
// 0, or 1 with one line on standard error. SIGINT and SIGTERM cancel the
// command's context; a second one ends the process at once.
func Main() int {
	if err := hideToken(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "fairway: %v\n", err)
		return 1
	}
	ctx, stop := interruptible()
	defer stop()

	ran, err := calledAs(os.Args[0], os.Args[1:]).ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	ending := exit.Error{Code: failureCode(ran), Err: err}
	if errors.As(err, &ending); ending.Err != nil {
		fmt.Fprintf(os.Stderr, "fairway: %v\n", advise(ran, ending.Err))
	}
	return ending.Code
}

// failureCode is the exit code of a command that failed. Those that answer a question say
// no with 1.
func failureCode(ran *cobra.Command) int {
	if ran != nil && slices.Contains([]string{"explain", "doctor", "dump", "trace", "flows"}, ran.Name()) {
		return 2
	}
	return 1
}

// calledAs is the command to run, with its arguments, under the name by which
// the program was called. A link named kubectl is kubectl. One named
// kubectl-fairway is a plugin of it, and one named kubectl_complete-fairway
// completes that plugin's command line.
func calledAs(name string, args []string) *cobra.Command {
	root := newRoot()
	switch filepath.Base(name) {
	case "kubectl":
		if c, _, err := root.Find([]string{"kubectl"}); err == nil && c != root {
			args = append([]string{"kubectl"}, args...)
		}
	case "kubectl-fairway":
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairway"}
	case "kubectl_complete-fairway":
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root.SetArgs(args)
	return root
}

// newRoot is the whole tree of commands, with help and completion.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "fairway",
		Short:         "Kubernetes Services in one binary: API, load balancing in the kernel, DNS, and a lab to try them",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("fairway {{.Version}}\n")
	root.AddCommand(commands()...)
	root.AddCommand(manual.Command())
	root.InitDefaultHelpCmd()
	root.InitDefaultVersionFlag()
	help.Apply(root, examples)
	complete.Add(root)
	root.SetFlagErrorFunc(flagError)
	privilege.Require(root)
	sayUsage(root)
	refuseUnknown(root)
	return root
}

// refuseUnknown has commands that are but groups of others refuse a name that is
// none of theirs. Without one they show their help.
func refuseUnknown(c *cobra.Command) {
	for _, sub := range c.Commands() {
		refuseUnknown(sub)
	}
	if !c.HasSubCommands() || c.Runnable() || !c.HasParent() {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2 // as cobra has it for the first command
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		hint := fmt.Sprintf("see %s --help", c.CommandPath())
		if names := c.SuggestionsFor(args[0]); len(names) > 0 {
			hint = "did you mean " + strings.Join(names, " or ") + "?"
		}
		return fmt.Errorf("%s has no command %q: %s", c.CommandPath(), args[0], hint)
	}
}

// oneStroke is how far apart two signals are at least that ask twice. What ends
// another program, such as timeout(1), may signal it and then its group.
const oneStroke = 100 * time.Millisecond

// interruptible returns a context that the first SIGINT or SIGTERM ends. The
// second one ends the process, even if a library listens to signals too.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		for first := time.Now(); ; {
			<-signals
			if time.Since(first) > oneStroke {
				break
			}
		}
		fmt.Fprintln(os.Stderr, "fairway: ended at once")
		os.Exit(130)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}
