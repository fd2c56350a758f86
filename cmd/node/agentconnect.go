package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/diagnose/agentlink"
	"github.com/fairway-net/fairway/diagnose/reach"
	"github.com/fairway-net/fairway/internal/kernel"
)

// AgentConnect is run in an agent's pod by commands elsewhere; see package reach.
func AgentConnect() *cobra.Command {
	var stateDir string
	c := &cobra.Command{
		Use:    reach.Command,
		Short:  "Connect standard input and output with the socket of this machine's agent",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return connectAgent(cmd.Context(), filepath.Join(stateDir, agentlink.SocketName), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&stateDir, "state-dir", kernel.DefaultStateDir, "the agent's state directory")
	return c
}

// connectAgent copies both ways until either end is over.
func connectAgent(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connect with the agent: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends both copies
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = io.Copy(conn, in) // however the client ends
		// Nobody asks any more, nor reads what is still told: so the agent ends it.
		_ = conn.Close()
	}()
	_, err = io.Copy(out, conn)
	select {
	case <-asked: // it was the client that ended, however
		return nil
	default:
		return err
	}
}
