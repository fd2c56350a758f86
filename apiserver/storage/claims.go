package storage

import (
	"context"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// Claims are the etcd keys that a stored object owns exclusively, beside its
// own: its cluster IPs and node ports, say. They are written and deleted in
// the very transaction that writes or deletes the object. So an address can
// neither be held by two objects nor leak, whichever server writes, and
// whenever it crashes.
type Claims interface {
	// Keys returns the keys that an object, as stored, owns.
	Keys(object []byte) ([]string, error)
	// Committed is told what a transaction took and gave back, and at which
	// revision.
	Committed(taken, released []string, revision int64)
}

// ClaimedError says that another object owns a key that this one asked for.
type ClaimedError struct{ Key string }

func (e *ClaimedError) Error() string { return fmt.Sprintf("%s is already claimed", e.Key) }

// claimingClient extends the writes of one resource with its claims.
type claimingClient struct {
	kubernetes.Interface
	kv     clientv3.KV
	claims Claims
}

// OptimisticPut writes an object if it is still at the expected revision and
// nobody else owns what it newly claims.
func (c *claimingClient) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	after, err := c.claims.Keys(value)
	if err != nil {
		return kubernetes.PutResponse{}, fmt.Errorf("find claims of %s: %w", key, err)
	}
	before, err := c.current(ctx, key, expected)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	taken, released := difference(after, before), difference(before, after)
	if len(taken)+len(released) == 0 {
		return c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	resp, kv, err := c.transact(ctx, key, expected, taken, released, clientv3.OpPut(key, string(value), clientv3.WithLease(opts.LeaseID)))
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	return kubernetes.PutResponse{KV: kv, Succeeded: resp.Succeeded, Revision: resp.Header.Revision}, nil
}

// OptimisticDelete deletes an object with everything that it claims.
func (c *claimingClient) OptimisticDelete(ctx context.Context, key string, expected int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	before, err := c.current(ctx, key, expected)
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	if len(before) == 0 {
		return c.Interface.OptimisticDelete(ctx, key, expected, opts)
	}
	resp, kv, err := c.transact(ctx, key, expected, nil, before, clientv3.OpDelete(key))
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	return kubernetes.DeleteResponse{KV: kv, Succeeded: resp.Succeeded, Revision: resp.Header.Revision}, nil
}

// current returns the claims of the object at the expected revision. If it
// has changed since, the transaction fails on the revision and its claims
// don't matter.
func (c *claimingClient) current(ctx context.Context, key string, expected int64) ([]string, error) {
	if expected == 0 {
		return nil, nil
	}
	resp, err := c.Interface.Get(ctx, key, kubernetes.GetOptions{})
	if err != nil {
		return nil, err
	}
	if resp.KV == nil || resp.KV.ModRevision != expected {
		return nil, nil
	}
	keys, err := c.claims.Keys(resp.KV.Value)
	if err != nil {
		return nil, fmt.Errorf("find claims of %s: %w", key, err)
	}
	return keys, nil
}

// transact performs the write with its claims. If it is refused, the object as
// it is now is returned, or a ClaimedError.
func (c *claimingClient) transact(ctx context.Context, key string, expected int64, taken, released []string, write clientv3.Op) (*clientv3.TxnResponse, *mvccpb.KeyValue, error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", expected)}
	then := []clientv3.Op{write}
	otherwise := []clientv3.Op{clientv3.OpGet(key)}
	for _, k := range taken {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(k), "=", 0))
		then = append(then, clientv3.OpPut(k, key))
		otherwise = append(otherwise, clientv3.OpGet(k))
	}
	for _, k := range released {
		then = append(then, clientv3.OpDelete(k))
	}
	resp, err := c.kv.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return nil, nil, err
	}
	if resp.Succeeded {
		c.claims.Committed(taken, released, resp.Header.Revision)
		return resp, nil, nil
	}
	kv := first(resp.Responses[0])
	if revision(kv) != expected {
		return resp, kv, nil
	}
	for i, k := range taken {
		if owner := first(resp.Responses[i+1]); owner != nil {
			c.claims.Committed([]string{k}, nil, owner.ModRevision)
			return nil, nil, &ClaimedError{Key: k}
		}
	}
	return nil, nil, fmt.Errorf("write %s: transaction refused for no visible reason", key)
}

func first(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

func revision(kv *mvccpb.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}

// difference returns the keys of a that b lacks, each once.
func difference(a, b []string) []string {
	var out []string
	for _, k := range a {
		if !slices.Contains(b, k) && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}
