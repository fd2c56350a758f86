//go:build agentonly

package node

import "github.com/spf13/cobra"

// addRotateKey adds nothing: keys are replaced where Fairway's other controllers are.
func addRotateKey(*cobra.Command) {}
