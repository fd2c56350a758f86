package apiserver

import (
	"context"
	"encoding/json"
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

	"github.com/fairway-net/fairway/internal/logdedup"
)

// presence keeps a server listed among those on one etcd, and the endpoints of
// the Service `kubernetes` equal to that list. A server that dies falls off
// the list when its lease runs out; the others then take its endpoint away.
type presence struct {
	etcd *clientv3.Client
	api  kubernetes.Interface
	self netip.AddrPort
	// alone says that no other server can be on this etcd: a server that is listed has
	// died.
	alone bool
	// describe is what the server says of itself, and said what it has said.
	describe func() listed
	said     string
	lease    clientv3.LeaseID
	closed   chan struct{}
	// services makes the Services of the API and of DNS that aren't there.
	services func(context.Context) error
	// changed is told the URLs of all servers; nil if nobody asks.
	changed func([]string) error
	// sliceNames are the EndpointSlices that were wanted when all were listed last.
	sliceNames   []string
	slicesListed time.Time
}

// listed is a server on the list.
type listed struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// SecretKeys are the names of the keys that it reads Secrets with; the first is the
	// one that it writes with.
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Authorities are the keys of each authority that it uses, the one that signs first.
	Authorities map[string][]string `json:"authorities,omitempty"`
	// Outdated are clients of each authority for whom only its old key vouches.
	Outdated map[string][]string `json:"outdated,omitempty"`
	at       netip.AddrPort
}

const (
	presencePrefix = "/fairway/servers/"
	// leaseSeconds is how long a dead server stays listed, renewed every
	// renewPeriod.
	leaseSeconds = 10
	renewPeriod  = 3 * time.Second
	// presenceTimeout bounds one look at the list: without most of the servers
	// of a cluster nothing comes of it.
	presenceTimeout = 15 * time.Second
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
	log := slog.New(logdedup.New(slog.Default().Handler()))
	for failures := 0; ; {
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
			err = p.once(ctx, p.reconcile)
		case <-tick.C:
			err = p.once(ctx, p.renew, p.services, p.reconcile)
		}
		if failures++; err == nil {
			failures = 0
		}
		if failures > 1 && ctx.Err() == nil { // one may be for a new leader of etcd
			log.Warn("the Services kubernetes and kube-dns could not be updated; trying again", "error", err)
		}
	}
}

// once takes each of the steps.
func (p *presence) once(ctx context.Context, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	var errs []error
	for _, step := range steps {
		errs = append(errs, step(ctx))
	}
	return errors.Join(errs...)
}

// renew keeps the lease alive, or takes a new one if it has run out, and what the server
// says of itself up to date.
func (p *presence) renew(ctx context.Context) error {
	if p.lease != clientv3.NoLease {
		_, err := p.etcd.KeepAliveOnce(ctx, p.lease)
		if err == nil {
			return p.say(ctx)
		}
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("renew lease: %w", err)
		}
	}
	grant, err := p.etcd.Grant(ctx, leaseSeconds)
	if err != nil {
		return fmt.Errorf("take lease: %w", err)
	}
	p.lease, p.said = grant.ID, ""
	return p.say(ctx)
}

// say lists the server, if what it says isn't what it has said.
func (p *presence) say(ctx context.Context) error {
	data, err := json.Marshal(p.describe())
	if err != nil {
		return fmt.Errorf("list server: %w", err)
	}
	if string(data) == p.said {
		return nil
	}
	if _, err := p.etcd.Put(ctx, presencePrefix+p.self.String(), string(data), clientv3.WithLease(p.lease)); err != nil {
		return fmt.Errorf("list server: %w", err)
	}
	p.said = string(data)
	return nil
}

// leave takes the server off the list, for the others to see. What they then
// do is theirs: this server's API is going.
func (p *presence) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.etcd.Revoke(ctx, p.lease); err != nil {
		slog.Debug("this server could not be taken off the list of servers; the others notice when its Lease expires", "error", err)
	}
}

// present returns where the listed servers are, in order.
func (p *presence) present(ctx context.Context) ([]netip.AddrPort, error) {
	servers, err := listServers(ctx, p.etcd)
	var out []netip.AddrPort
	for _, s := range servers {
		out = append(out, s.at)
	}
	return out, err
}

// listServers returns the listed servers in order.
func listServers(ctx context.Context, etcd *clientv3.Client) ([]listed, error) {
	resp, err := etcd.Get(ctx, presencePrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list servers: %w", err)
	}
	var list []listed
	for _, kv := range resp.Kvs {
		var one listed
		if len(kv.Value) > 0 { // earlier versions wrote none
			if err := json.Unmarshal(kv.Value, &one); err != nil {
				return nil, fmt.Errorf("read list of servers: %w", err)
			}
		}
		if one.at, err = netip.ParseAddrPort(strings.TrimPrefix(string(kv.Key), presencePrefix)); err != nil {
			return nil, fmt.Errorf("read list of servers: %w", err)
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b listed) int { return a.at.Compare(b.at) })
	return list, nil
}
