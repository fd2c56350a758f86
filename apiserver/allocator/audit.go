package allocator

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is how many Services are read at a time.
const page = 1000

// audit compares the claims with the Services stored. They can only disagree
// if something other than this server wrote to etcd (a restored or imported
// store); then the Services are right.
func (a *Allocator) audit(ctx context.Context, client *clientv3.Client) error {
	wanted, revisions, err := a.wanted(ctx, client)
	if err != nil {
		return err
	}
	resp, err := client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		if wanted[key] == string(kv.Value) {
			delete(wanted, key)
			continue
		}
		if err := a.dropOrphan(ctx, client, kv, revisions[string(kv.Value)]); err != nil {
			return err
		}
	}
	for key, owner := range wanted {
		slog.Info("the claim of an address or port is restored", "claim", key, "owner", owner)
		_, err := client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
			clientv3.Compare(clientv3.ModRevision(owner), "=", revisions[owner]),
		).Then(clientv3.OpPut(key, owner)).Commit()
		if err != nil {
			return fmt.Errorf("restore claim %s: %w", key, err)
		}
	}
	return nil
}

// wanted returns the owner of every claim that the stored Services make, and
// the revisions of the Services.
func (a *Allocator) wanted(ctx context.Context, client *clientv3.Client) (owners map[string]string, revisions map[string]int64, err error) {
	owners, revisions = map[string]string{}, map[string]int64{}
	start, end := servicesPrefix, clientv3.GetPrefixRangeEnd(servicesPrefix)
	for {
		resp, err := client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return nil, nil, fmt.Errorf("list Services: %w", err)
		}
		for _, kv := range resp.Kvs {
			owner := string(kv.Key)
			revisions[owner] = kv.ModRevision
			claims, err := a.Keys(kv.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("read %s: %w", owner, err)
			}
			for _, key := range claims {
				if other, double := owners[key]; double {
					slog.Warn("two Services hold one address or port", "claim", key, "owner", other, "other", owner)
					continue
				}
				owners[key] = owner
			}
		}
		if !resp.More {
			return owners, revisions, nil
		}
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// dropOrphan deletes a claim whose owner, as seen, doesn't make it.
func (a *Allocator) dropOrphan(ctx context.Context, client *clientv3.Client, claim *mvccpb.KeyValue, ownerRevision int64) error {
	key, owner := string(claim.Key), string(claim.Value)
	slog.Info("the claim of an address or port has no owner and is dropped", "claim", key, "owner", owner)
	_, err := client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(key), "=", claim.ModRevision),
		clientv3.Compare(clientv3.ModRevision(owner), "=", ownerRevision),
	).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("drop claim %s: %w", key, err)
	}
	return nil
}
