package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestDespiteElections: a step is taken again after a change of leader, for a while; other
// errors, and the end of the context, end it at once.
func TestDespiteElections(t *testing.T) {
	other := errors.New("no room")
	for name, c := range map[string]struct {
		errs  []error
		want  error
		steps int
	}{
		"once":          {errs: []error{nil}, steps: 1},
		"etcd's":        {errs: []error{fmt.Errorf("list: %w", rpctypes.ErrLeaderChanged), rpctypes.ErrNoLeader, nil}, steps: 3},
		"the API's":     {errs: []error{errors.Join(fmt.Errorf("write: %w", apierrors.NewServiceUnavailable("leader"))), nil}, steps: 2},
		"another error": {errs: []error{rpctypes.ErrTimeout, other, nil}, want: other, steps: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				err := DespiteElections(t.Context(), "test", func(context.Context) error {
					n++
					return c.errs[n-1]
				})
				if !errors.Is(err, c.want) || n != c.steps {
					t.Errorf("%v after %d steps, want %v after %d", err, n, c.want, c.steps)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := DespiteElections(t.Context(), "write roles", func(context.Context) error { return rpctypes.ErrLeaderChanged })
		if took := time.Since(began); !errors.Is(err, rpctypes.ErrLeaderChanged) || !strings.Contains(err.Error(), "write roles: the servers have had no lasting leader for 1m") || took < electionTimeout || took > electionTimeout+time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := DespiteElections(ctx, "test", func(context.Context) error {
			n++
			cancel()
			return rpctypes.ErrNoLeader
		})
		if n != 1 || err == nil {
			t.Errorf("after the end: %v, %d steps", err, n)
		}
	})
}
