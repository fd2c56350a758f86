//go:build !agentonly

package cmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/fairway-net/fairway/agent"
)

// calmStart says in a few lines how a start goes. Until it is over, the log has
// only what is wrong.
type calmStart struct {
	out     io.Writer
	level   *slog.LevelVar // of the agent's log
	verbose bool
}

func (c *calmStart) begin() *calmStart {
	if !c.verbose {
		c.level.Set(slog.LevelWarn)
	}
	return c
}

// started tells how it goes on, once everything works.
func (c *calmStart) started(s agent.Started) {
	if !c.verbose {
		c.level.Set(slog.LevelInfo)
	}
	fmt.Fprintf(c.out, "Mode %s: %s\n", s.Mode, s.Why)
	fmt.Fprintf(c.out, "%d Services are in force\n", s.Services)
	fmt.Fprintln(c.out, "Try: fairway kubectl get services --all-namespaces")
	fmt.Fprintln(c.out, "To stop: Ctrl-C. What the kernel forwards stays, until `fairway cleanup`")
}

// stopping tells what happens to what is in the kernel.
func (c *calmStart) stopping() {
	fmt.Fprintln(c.out, "Stopping: agent, DNS and API end; the kernel goes on forwarding to the endpoints known now. To remove its rules: fairway cleanup. Ctrl-C again ends at once")
}

// sayStopping tells what ends and what goes on, as soon as the user has asked a
// server or an agent to end.
func sayStopping(ctx context.Context, out io.Writer, what string) (forget func() bool) {
	return context.AfterFunc(ctx, func() { fmt.Fprintf(out, "Stopping: %s. Ctrl-C again ends at once\n", what) })
}
