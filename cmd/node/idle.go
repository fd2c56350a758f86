package node

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Idle waits until it is told to end. It is what the container of a pod does that has done
// all in its init containers: the image has no other program that waits.
func Idle() *cobra.Command {
	return &cobra.Command{
		Use:    "idle",
		Short:  "Wait until told to end: for the container of a pod whose init containers do the work",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			<-ctx.Done()
			return nil
		},
	}
}
