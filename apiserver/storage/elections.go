package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// electionTimeout bounds how long a step is tried again while the members
	// elect leaders. An election takes one to two seconds; on a busy machine
	// several may follow each other.
	electionTimeout = time.Minute
	electionPause   = 200 * time.Millisecond
)

// electionErrors are etcd's errors of a time without a leader.
var electionErrors = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged,
	rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex,
}

// IsElection says whether something failed because the members had no leader or another
// one than before: directly, or through the API of this server (quorumClient).
func IsElection(err error) bool {
	for _, known := range electionErrors {
		if errors.Is(err, known) {
			return true
		}
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

// DespiteElections takes a step which may be taken twice, of a server's start for example.
// It takes the step again as long as members elect a leader meanwhile, for electionTimeout.
func DespiteElections(ctx context.Context, what string, step func(context.Context) error) error {
	for began, said := time.Now(), false; ; {
		err := step(ctx)
		if err == nil || !IsElection(err) {
			return err
		}
		if since := time.Since(began); since > electionTimeout {
			return fmt.Errorf("%s: the servers have had no lasting leader for %s: %w", what, since.Round(time.Second), err)
		}
		if !said {
			slog.Info("the servers change their leader: trying again", "step", what, "error", err)
			said = true
		}
		if pause(ctx, electionPause) != nil {
			return err
		}
	}
}
