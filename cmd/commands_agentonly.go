//go:build agentonly

package cmd

import "github.com/spf13/cobra"

// commands are what the image of the DaemonSet can be: a node's agent, and what
// says why it does what it does. It has no API server, no laboratory and no
// kubectl, so that a hole in one of those is none on every node.
func commands() []*cobra.Command {
	return []*cobra.Command{
		agentCommand(),
		dnsCommand(),
		gatewayCommand(),
		renderCommand(),
		explainCommand(),
		doctorCommand(),
		agentConnectCommand(),
		dumpCommand(),
		bundleCommand(),
		traceCommand(),
		flowsCommand(),
		addressesCommand(),
		announceCommand(),
		drainCommand(),
		cleanupCommand(),
		statusCommand(),
		versionCommand(),
	}
}
