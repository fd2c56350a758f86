//go:build agentonly

package cmd

import (
	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/cmd/diagnosis"
	"github.com/fairway-net/fairway/cmd/node"
	"github.com/fairway-net/fairway/cmd/requests"
	"github.com/fairway-net/fairway/cmd/services"
)

// commands are what the image of the DaemonSet can be: a node's agent, and what
// says why it does what it does. It has no API server, no laboratory and no
// kubectl, so that a hole in one of those is none on every node.
func commands() []*cobra.Command {
	return []*cobra.Command{
		node.Agent(),
		node.DNS(),
		requests.Gateway(),
		diagnosis.Render(),
		diagnosis.Explain(),
		diagnosis.Doctor(),
		node.AgentConnect(),
		diagnosis.Dump(),
		diagnosis.Bundle(),
		diagnosis.Trace(),
		diagnosis.Flows(),
		node.Addresses(),
		node.Announce(),
		node.Drain(),
		node.Cleanup(),
		node.Idle(),
		services.Status(),
		versionCommand(),
	}
}
