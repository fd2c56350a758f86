package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// marker is the key that says that a store is Fairway's.
	marker = "/fairway/store"
	// ownPrefix is where only Fairway writes.
	ownPrefix = "/fairway/"
)

// claimStore marks a store as ours. A store that has objects of somebody else,
// a Kubernetes cluster's say, is refused: the controllers would collect their
// garbage.
func claimStore(ctx context.Context, client *clientv3.Client) error {
	ours, err := client.Get(ctx, ownPrefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("look for marker: %w", err)
	}
	if len(ours.Kvs) == 0 {
		objects, err := client.Get(ctx, keyPrefix+"/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil {
			return fmt.Errorf("look for objects: %w", err)
		}
		if len(objects.Kvs) > 0 {
			return fmt.Errorf("it has objects that Fairway did not write, such as %s: use another etcd, or --etcd-prefix to keep apart from them", objects.Kvs[0].Key)
		}
	}
	_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(marker), "=", 0)).Then(clientv3.OpPut(marker, "1")).Commit()
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	return nil
}
