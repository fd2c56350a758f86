package controller

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// TestLeaseReleasedAfterWork: whoever leads next begins when the work of the one
// before has ended, not when it was told to.
func TestLeaseReleasedAfterWork(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(t.Context())
	leading, ended, overlap := make(chan struct{}), atomic.Bool{}, atomic.Bool{}
	first := make(chan error, 1)
	go func() {
		first <- (&Lease{Namespace: "kube-system", Name: "fairway", Identity: "a"}).Lead(ctx, client, func(ctx context.Context) error {
			close(leading)
			<-ctx.Done()
			time.Sleep(retryPeriod + time.Second) // the other asks in the meantime
			ended.Store(true)
			return nil
		})
	}()
	<-leading
	second, begun := make(chan error, 1), make(chan struct{})
	other, stopOther := context.WithCancel(t.Context())
	go func() {
		second <- (&Lease{Namespace: "kube-system", Name: "fairway", Identity: "b"}).Lead(other, client, func(ctx context.Context) error {
			overlap.Store(!ended.Load())
			close(begun)
			<-ctx.Done()
			return nil
		})
	}()
	stop()
	<-begun
	stopOther()
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if overlap.Load() {
		t.Error("two led at once")
	}
}
