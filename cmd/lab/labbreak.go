//go:build !agentonly

package lab

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairway-net/fairway/lab"
	"github.com/fairway-net/fairway/lab/fault"
)

// podFaultHelp and nodeFaultHelp say what each fault is.
var (
	podFaultHelp = map[fault.Kind]string{
		fault.Unready: "it is not ready, whatever its probes say",
		fault.Silent:  "packets to it are dropped silently",
		fault.Slow:    fmt.Sprintf("packets to it are delayed by %v", fault.Delay),
		fault.Lossy:   fmt.Sprintf("it loses %d %% of the packets to it", fault.LossPercent),
	}
	nodeFaultHelp = map[fault.Kind]string{
		fault.Power:     "all on it stops at once, and nobody is told",
		fault.Link:      "its link goes down, which it sees",
		fault.Partition: "nothing passes its link, which stays up",
	}
)

func labBreakCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:     "break POD|NAMESPACE/POD",
		Short:   "Break a pod or a node of a lab on purpose, until lab mend",
		Example: "  fairway lab break web-6d5f9-x7k2p --silent\n  fairway lab break node node2 --power\n  fairway lab mend",
	}
	addLabName(c.PersistentFlags(), &name)
	chosen := addFaults(c, fault.Pods, podFaultHelp)
	c.Args = cobra.ExactArgs(1)
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		if chosen() == "" {
			return fmt.Errorf("how is %s to be broken? --%s, --%s, --%s or --%s. A node is broken by: fairway lab break node %s --%s", args[0], fault.Unready, fault.Silent, fault.Slow, fault.Lossy, args[0], fault.Power)
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return lab.BreakPod(cmd.Context(), name, args[0], chosen())
	}
	node := &cobra.Command{
		Use: "node NODE", Short: "Break a node on purpose", Args: cobra.ExactArgs(1),
		Example: "  fairway lab break node node2 --link",
	}
	chosenNode := addFaults(node, fault.Nodes, nodeFaultHelp)
	node.RunE = func(cmd *cobra.Command, args []string) error {
		return lab.BreakNode(cmd.Context(), name, args[0], chosenNode())
	}
	c.AddCommand(node)
	return c
}

// addFaults adds a flag for each kind, exactly one of which must be given, and
// returns what tells which.
func addFaults(c *cobra.Command, kinds []fault.Kind, help map[fault.Kind]string) (chosen func() fault.Kind) {
	given := map[fault.Kind]*bool{}
	var names []string
	for _, k := range kinds {
		given[k] = c.Flags().Bool(string(k), false, help[k])
		names = append(names, string(k))
	}
	c.MarkFlagsMutuallyExclusive(names...)
	c.MarkFlagsOneRequired(names...)
	return func() fault.Kind {
		for k, is := range given {
			if *is {
				return k
			}
		}
		return ""
	}
}

func labMendCommand() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:     "mend [POD|NAMESPACE/POD]",
		Short:   "Undo what lab break did to a pod, to a node, or to all",
		Example: "  fairway lab mend\n  fairway lab mend web-6d5f9-x7k2p",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return lab.MendAll(cmd.Context(), name)
			}
			return lab.MendPod(cmd.Context(), name, args[0])
		},
	}
	addLabName(c.PersistentFlags(), &name)
	c.AddCommand(&cobra.Command{
		Use: "node NODE", Short: "Undo what lab break did to a node", Args: cobra.ExactArgs(1),
		Example: "  fairway lab mend node node2",
		RunE:    func(cmd *cobra.Command, args []string) error { return lab.MendNode(cmd.Context(), name, args[0]) },
	})
	return c
}
