package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairway-net/fairway/apiserver/storage"
)

// electionGap is between two elections: the members get that little done in it that a
// start without waitTimeout fails.
const electionGap = 30 * time.Millisecond

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(electionGap):
	}
}

// electing has members take turns at leading as fast as they can.
func electing(ctx context.Context, servers ...*Server) (elections int) {
	for ctx.Err() == nil {
		for i, s := range servers {
			next := servers[(i+1)%len(servers)]
			for _, m := range s.backend.Members() {
				if m.Name != next.ClusterName() || m.Leader {
					continue
				}
				if _, err := s.backend.Client.MoveLeader(ctx, m.ID); err == nil { // only who leads can
					elections++
					pause(ctx)
				}
			}
		}
	}
	return elections
}

// TestStartDespiteElections: a server that starts while others elect one leader after the
// other starts all the same, and everything that every cluster has is there.
func TestStartDespiteElections(t *testing.T) {
	c := newCluster(t)
	one := c.first()
	two := start(t, c.joining(2, one, serverToken(t, one, time.Time{})))
	config := c.joining(3, one, serverToken(t, one, time.Time{}))
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		elections := make(chan int, 1)
		go func() { elections <- electing(ctx, one, two) }()
		// The elections end in time for a start that goes on.
		time.AfterFunc(electionsFor, cancel)
		three, err := Start(t.Context(), config)
		cancel()
		t.Logf("%d elections", <-elections)
		if err != nil {
			t.Fatal(err)
		}
		// The last election may still be going on.
		err = storage.DespiteElections(within(t), "read the ServiceCIDR", func(ctx context.Context) error {
			cidr, err := client(t, three).NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
			if err == nil && len(cidr.Status.Conditions) != 1 {
				t.Errorf("the ServiceCIDR has conditions %v", cidr.Status.Conditions)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if err := errors.Join(three.Close(), three.Wait()); err != nil {
			t.Fatal(err)
		}
		config.Join, config.Token = "", ""
	}
}

// electionsFor is long enough that a start on a busy machine meets some.
const electionsFor = 8 * time.Second
