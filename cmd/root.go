// Package cmd turns command lines into typed configuration and runs the roles
// of the binary: one file per command, no behaviour of its own.
package cmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// commands is the one list of what the binary can be.
func commands() []*cobra.Command {
	return []*cobra.Command{
		upCommand(),
		serverCommand(),
		agentCommand(),
		dnsCommand(),
		renderCommand(),
		cleanupCommand(),
		labCommand(),
		benchCommand(),
		kubectlCommand(),
		versionCommand(),
	}
}

// Main runs the command named on the command line and returns the exit code:
// 0, or 1 with one line on standard error. SIGINT and SIGTERM cancel the
// command's context; a second one ends the process at once.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := &cobra.Command{
		Use:           "fairway",
		Short:         "Kubernetes Services as one binary",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "fairway: %v\n", err)
		return 1
	}
	return 0
}
