//go:build !agentonly

package cmd

//go:generate go test -run ^TestReference$ -update-reference .

import (
	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/cluster"
	"github.com/fairway-net/fairway/cmd/diagnosis"
	"github.com/fairway-net/fairway/cmd/kubectl"
	"github.com/fairway-net/fairway/cmd/lab"
	"github.com/fairway-net/fairway/cmd/node"
	"github.com/fairway-net/fairway/cmd/requests"
	"github.com/fairway-net/fairway/cmd/services"
)

// commands is the one list of what the binary can be.
func commands() []*cobra.Command {
	return []*cobra.Command{
		cluster.Up(),
		cluster.Server(),
		cluster.Install(),
		cluster.Uninstall(),
		cluster.Join(),
		cluster.Leave(),
		cluster.Token(),
		cluster.Certs(),
		node.Agent(),
		node.DNSAndMachine(),
		requests.Gateway(),
		requests.Ingress(),
		diagnosis.Render(),
		diagnosis.Explain(),
		diagnosis.Doctor(),
		diagnosis.Diff(),
		node.AgentConnect(),
		diagnosis.Dump(),
		diagnosis.Bundle(),
		diagnosis.Trace(),
		diagnosis.Flows(),
		diagnosis.Web(),
		diagnosis.Monitoring(),
		node.Addresses(),
		node.Announce(),
		node.Drain(),
		node.Cleanup(),
		node.Idle(),
		lab.Lab(),
		services.Expose(),
		services.Ls(),
		services.Publish(),
		node.Hook(),
		services.Status(),
		kubectl.Kubectl(),
		versionCommand(),
	}
}
