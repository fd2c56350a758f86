//go:build !agentonly

package cmd

//go:generate go test -run ^TestReference$ -update-reference .

import "github.com/spf13/cobra"

// commands is the one list of what the binary can be.
func commands() []*cobra.Command {
	return []*cobra.Command{
		upCommand(),
		serverCommand(),
		installCommand(),
		uninstallCommand(),
		joinCommand(),
		leaveCommand(),
		tokenCommand(),
		certsCommand(),
		agentCommand(),
		dnsAndMachineCommand(),
		gatewayCommand(),
		ingressCommand(),
		renderCommand(),
		explainCommand(),
		doctorCommand(),
		agentConnectCommand(),
		dumpCommand(),
		bundleCommand(),
		traceCommand(),
		flowsCommand(),
		webCommand(),
		addressesCommand(),
		announceCommand(),
		drainCommand(),
		cleanupCommand(),
		labCommand(),
		exposeCommand(),
		lsCommand(),
		publishCommand(),
		hookCommand(),
		statusCommand(),
		kubectlCommand(),
		versionCommand(),
	}
}
