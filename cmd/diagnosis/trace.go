package diagnosis

import (
	"fmt"
	"io"
	"time"

	"github.com/fairway-net/fairway/cmd/source"

	"github.com/fairway-net/fairway/cmd/exit"
	"github.com/fairway-net/fairway/cmd/privilege"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/diagnose/collect"
	"github.com/fairway-net/fairway/diagnose/trace/follow"
)

// mostWait is the longest time that trace waits for somebody's connection.
const mostWait = 10 * time.Minute

func Trace() *cobra.Command {
	asked := collect.Source{}
	r := follow.Request{Source: &asked}
	output := ""
	c := &cobra.Command{
		Use:   "trace svc/NAME[:PORT] | ADDRESS:PORT",
		Short: "Follow one real connection through every rule of a node, including other programs' rules",
		Long: `Follow one real connection through the rules of its node, and, with --send, of the
endpoint's node if its agent can be asked: each rule of nftables or iptables
whose conditions held, whoever made it, where it was translated, which endpoint was
chosen, which rule dropped it or why the kernel did, and what came back.

Without --send, wait for the next connection that somebody makes. With --send, make
one: from the pod or node that --from names, else from the node itself. It takes root
on the node, or the right to ask its agent by way of the API (pods/exec in Kubernetes,
to create nodes/proxy with Fairway's own API server). While it runs, a table of nftables
that belongs to this process or to the agent marks the packets of this connection alone;
the kernel removes it when the process ends, however it does, and the agent when the
command does.

The exit code is 0 if the connection was answered, 1 if it was lost or refused, 2 if it
can't be traced from here, and 3 if none came in time.`,
		Example: `  sudo fairway trace svc/web --send
  sudo fairway trace svc/web --from pod/client-a --send
  sudo fairway trace svc/web:http --from pod/client-a      # waits for its next connection
  sudo fairway trace 10.96.0.10:53/udp --from node/node1 --send -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Target, r.Say = args[0], cmd.ErrOrStderr()
			if err := checkTrace(&r, output); err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			if err := privilege.Check(cmd); err != nil {
				r.NotRoot = fmt.Errorf("to trace on this machine takes root: %w", err)
			}
			report, err := follow.Connection(cmd.Context(), r)
			if err != nil {
				return exit.Error{Code: 2, Err: err}
			}
			text := func(out io.Writer) error { return report.WriteText(out, output == "wide") }
			if err := writeReport(cmd.OutOrStdout(), output, report, text); err != nil {
				return err
			}
			if code := report.ExitCode(); code != 0 {
				return exit.Error{Code: code}
			}
			return nil
		},
	}
	source.Add(c.Flags(), &asked)
	c.Flags().StringVar(&r.From, "from", "", "who connects: pod/NAME, node/NAME or an IP address; without it, anybody, and with --send the node")
	c.Flags().StringVar(&r.Node, "node", "", "the node to watch; without it, that of --from")
	c.Flags().BoolVar(&r.Send, "send", false, "make a connection, and close it at once; over UDP send a line of text")
	c.Flags().DurationVar(&r.Wait, "wait", 30*time.Second, "how long to wait for somebody's connection, ten minutes at most")
	c.Flags().DurationVar(&r.Timeout, "timeout", 3*time.Second, "how long to wait for an answer")
	c.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml")
	return c
}

func checkTrace(r *follow.Request, output string) error {
	switch {
	case r.Wait <= 0 || r.Wait > mostWait:
		return fmt.Errorf("--wait: %s must be more than 0 and at most %s", r.Wait, mostWait)
	case r.Timeout <= 0:
		return fmt.Errorf("--timeout: %s must be more than 0", r.Timeout)
	}
	return checkOutput(output, "wide", "json", "yaml")
}
