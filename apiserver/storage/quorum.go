package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// leaderTimeout is how long a request waits for the members to elect a
	// leader. An election takes one to two seconds.
	leaderTimeout = 4 * time.Second
	leaderPeriod  = 20 * time.Millisecond
)

// quorumClient answers in plain words when most of the members are away.
type quorumClient struct {
	kubernetes.Interface
	backend *Backend
}

// noQuorum is the answer to what takes most of the members.
func (b *Backend) noQuorum() error {
	return unavailable("this server doesn't reach most of the %d servers of the cluster: nothing can be read or written until it does; see `fairway server members`", len(b.Members()))
}

func unavailable(format string, args ...any) error {
	return &statusError{metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: fmt.Sprintf(format, args...),
	}}
}

// await returns when there is a leader, or an error when there isn't one in time.
func (c *quorumClient) await(ctx context.Context) error {
	for began := time.Now(); c.backend.etcd.Leader() == 0; {
		if time.Since(began) > leaderTimeout {
			return c.backend.noQuorum()
		}
		if err := pause(ctx, leaderPeriod); err != nil {
			return err
		}
	}
	return nil
}

// explain says what etcd's errors mean that come from members being away.
func (c *quorumClient) explain(err error) error {
	if !IsElection(err) && !errors.Is(err, rpctypes.ErrStopped) {
		return err
	}
	if c.backend.etcd.Leader() == 0 {
		return c.backend.noQuorum()
	}
	return unavailable("the servers changed their leader meanwhile (%v): a write may have been done or not; try again", err)
}

// Get implements kubernetes.Interface.
func (c *quorumClient) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	if err := c.await(ctx); err != nil {
		return kubernetes.GetResponse{}, err
	}
	resp, err := c.Interface.Get(ctx, key, opts)
	return resp, c.explain(err)
}

// List implements kubernetes.Interface.
func (c *quorumClient) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	if err := c.await(ctx); err != nil {
		return kubernetes.ListResponse{}, err
	}
	resp, err := c.Interface.List(ctx, prefix, opts)
	return resp, c.explain(err)
}

// Count implements kubernetes.Interface.
func (c *quorumClient) Count(ctx context.Context, prefix string, opts kubernetes.CountOptions) (int64, error) {
	if err := c.await(ctx); err != nil {
		return 0, err
	}
	n, err := c.Interface.Count(ctx, prefix, opts)
	return n, c.explain(err)
}

// OptimisticPut implements kubernetes.Interface.
func (c *quorumClient) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if err := c.await(ctx); err != nil {
		return kubernetes.PutResponse{}, err
	}
	resp, err := c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	return resp, c.explain(err)
}

// OptimisticDelete implements kubernetes.Interface.
func (c *quorumClient) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	if err := c.await(ctx); err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	resp, err := c.Interface.OptimisticDelete(ctx, key, expected, opts)
	return resp, c.explain(err)
}
