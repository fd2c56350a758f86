package server

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/fairway-net/fairway/agent"
)

// Start says in a few lines how a start goes. Until it is over, the log has
// only what is wrong.
type Start struct {
	Out     io.Writer
	Level   *slog.LevelVar // of the agent's log
	Verbose bool
}

func (c *Start) begin() {
	if !c.Verbose {
		c.Level.Set(slog.LevelWarn)
	}
}

// started tells how it goes on, once everything works.
func (c *Start) started(s agent.Started) {
	if !c.Verbose {
		c.Level.Set(slog.LevelInfo)
	}
	fmt.Fprintf(c.Out, "Mode %s: %s\n", s.Mode, s.Why)
	fmt.Fprintf(c.Out, "%d Services are in force\n", s.Services)
	fmt.Fprintln(c.Out, "Try: fairway kubectl get services --all-namespaces")
	fmt.Fprintln(c.Out, "To stop: Ctrl-C. What the kernel forwards stays, until `fairway cleanup`")
}

// stopping tells what happens to what is in the kernel.
func (c *Start) stopping() {
	fmt.Fprintln(c.Out, "Stopping: agent, DNS and API end; the kernel goes on forwarding to the endpoints known now. To remove its rules: fairway cleanup. Ctrl-C again ends at once")
}
