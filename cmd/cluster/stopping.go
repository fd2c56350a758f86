//go:build !agentonly

package cluster

import (
	"context"
	"fmt"
	"io"
)

// sayStopping tells what ends and what goes on, as soon as the user has asked a
// server or an agent to end.
func sayStopping(ctx context.Context, out io.Writer, what string) (forget func() bool) {
	return context.AfterFunc(ctx, func() { fmt.Fprintf(out, "Stopping: %s. Ctrl-C again ends at once\n", what) })
}
