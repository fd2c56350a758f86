//go:build agentonly

package node

import "github.com/spf13/cobra"

// addRotateKey adds no command: an agent-only build lacks the address controller, whose
// package replaces the key that signs nodes' adverts.
func addRotateKey(*cobra.Command) {}
