package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
)

// presence keeps a server listed among those on one etcd, and the endpoints of
// the Service `kubernetes` equal to that list. A server that dies falls off
// the list when its lease runs out; the others then take its endpoint away.
type presence struct {
	etcd *clientv3.Client
	api  kubernetes.Interface
	self netip.AddrPort
	// alone says that no other server can be on this etcd: who is listed has
	// died.
	alone  bool
	lease  clientv3.LeaseID
	closed chan struct{}
}

const (
	presencePrefix = "/fairway/servers/"
	// leaseSeconds is how long a dead server stays listed, renewed every
	// renewPeriod.
	leaseSeconds = 15
	renewPeriod  = 5 * time.Second
)

// enter lists the server and writes the endpoints once.
func (p *presence) enter(ctx context.Context) error {
	if p.alone {
		if _, err := p.etcd.Delete(ctx, presencePrefix, clientv3.WithPrefix()); err != nil {
			return fmt.Errorf("clear list of servers: %w", err)
		}
	}
	if err := p.renew(ctx); err != nil {
		return err
	}
	return p.reconcile(ctx)
}

// run renews the lease and follows the list until the context ends.
func (p *presence) run(ctx context.Context) {
	defer close(p.closed)
	changes := p.etcd.Watch(ctx, presencePrefix, clientv3.WithPrefix())
	tick := time.NewTicker(renewPeriod)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			p.leave()
			return
		case _, ok := <-changes:
			if !ok {
				// The ticks go on without it.
				changes = nil
				continue
			}
			err = p.reconcile(ctx)
		case <-tick.C:
			err = errors.Join(p.renew(ctx), p.reconcile(ctx))
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("apiserver: keep the endpoints of Service kubernetes", "err", err)
		}
	}
}

// renew keeps the lease alive, or takes a new one if it has run out.
func (p *presence) renew(ctx context.Context) error {
	if p.lease != clientv3.NoLease {
		_, err := p.etcd.KeepAliveOnce(ctx, p.lease)
		if err == nil {
			return nil
		}
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("renew lease: %w", err)
		}
	}
	grant, err := p.etcd.Grant(ctx, leaseSeconds)
	if err != nil {
		return fmt.Errorf("take lease: %w", err)
	}
	if _, err := p.etcd.Put(ctx, presencePrefix+p.self.String(), "", clientv3.WithLease(grant.ID)); err != nil {
		return fmt.Errorf("list server: %w", err)
	}
	p.lease = grant.ID
	return nil
}

// leave takes the server off the list, for the others to see. What they then
// do is theirs: this server's API is going.
func (p *presence) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.etcd.Revoke(ctx, p.lease); err != nil {
		slog.Warn("apiserver: give lease back", "err", err)
	}
}

// present returns the listed servers in order.
func (p *presence) present(ctx context.Context) ([]netip.AddrPort, error) {
	resp, err := p.etcd.Get(ctx, presencePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	var list []netip.AddrPort
	for _, kv := range resp.Kvs {
		server, err := netip.ParseAddrPort(strings.TrimPrefix(string(kv.Key), presencePrefix))
		if err != nil {
			return nil, fmt.Errorf("read list of servers: %w", err)
		}
		list = append(list, server)
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return list, nil
}
