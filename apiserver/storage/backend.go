// Package storage connects the API server to etcd: embedded in this process,
// or an existing cluster.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Options say where the data lives.
type Options struct {
	// Dir is the data directory of the embedded etcd; not used with Servers.
	Dir string
	// Servers are the client URLs of an existing etcd.
	Servers []string
	// CAFile, CertFile and KeyFile secure the connection to Servers.
	CAFile, CertFile, KeyFile string
	// Prefix is put before every key in Servers.
	Prefix string
	// Member makes the embedded etcd one of several; nil keeps it alone.
	Member *Member
	// care is of the embedded etcd's file; usualMaintenance() if nil.
	care *maintenance
}

// Backend is an open connection to etcd.
type Backend struct {
	Client *kubernetes.Client
	// Failed delivers the error with which an embedded etcd stopped by itself.
	Failed <-chan error
	// disk is the embedded etcd's; nil without one.
	disk *disk
	// shim is what the library asks the embedded etcd by.
	shim *endpointShim
	// etcd is the embedded one, if it is one of several members.
	etcd     *etcdserver.EtcdServer
	handOver func()
	close    func() error
}

// Full says whether the disk is full, so that objects can't be written.
func (b *Backend) Full() bool { return b.disk != nil && b.disk.full.Load() }

// Healthy asks etcd for something that takes a quorum of its members.
func (b *Backend) Healthy(ctx context.Context) error {
	if _, err := b.Client.Client.Get(ctx, marker, clientv3.WithKeysOnly()); err != nil {
		return fmt.Errorf("reach etcd: %w", err)
	}
	return nil
}

// startTimeout bounds the wait for etcd to answer; replaying a large log
// on a slow disk takes a while.
const startTimeout = 60 * time.Second

// Open starts or reaches etcd and returns when it answers.
func Open(ctx context.Context, o Options) (*Backend, error) {
	disableRangeStream()
	if len(o.Servers) > 0 {
		return dial(ctx, o)
	}
	return startEmbedded(ctx, o)
}

// Close closes the connection and stops an embedded etcd.
func (b *Backend) Close() error { return b.close() }

// disableRangeStream switches off the streaming list RPC of etcd 3.7, which
// the in-process client doesn't implement. Feature gates are process-wide.
var disableRangeStream = sync.OnceFunc(func() {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.EtcdRangeStream): false}); err != nil {
		// The gate is known: its name is a constant of the same library.
		panic(err)
	}
})

func dial(ctx context.Context, o Options) (*Backend, error) {
	config := clientv3.Config{
		Endpoints:            o.Servers,
		DialTimeout:          10 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		Logger:               zap.NewNop(),
	}
	if o.CAFile != "" || o.CertFile != "" {
		tls, err := transport.TLSInfo{CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile}.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load etcd client certificates: %w", err)
		}
		config.TLS = tls
	}
	client, err := kubernetes.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", o.Servers, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if o.Prefix != "" {
		client.KV = namespace.NewKV(client.KV, o.Prefix)
		client.Watcher = namespace.NewWatcher(client.Watcher, o.Prefix)
		client.Lease = namespace.NewLease(client.Lease, o.Prefix)
	}
	if _, err := client.Client.Get(ctx, marker); err != nil {
		return nil, errors.Join(fmt.Errorf("reach etcd at %v: %w", o.Servers, err), client.Close())
	}
	if err := claimStore(ctx, client.Client); err != nil {
		return nil, errors.Join(fmt.Errorf("use etcd at %v: %w", o.Servers, err), client.Close())
	}
	reportProgress(client.Client, nil)
	return &Backend{Client: client, handOver: func() {}, close: sync.OnceValue(client.Close)}, nil
}

func startEmbedded(ctx context.Context, o Options) (*Backend, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create etcd data directory: %w", err)
	}
	d := &disk{dir: o.Dir}
	if err := d.look(); err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	fail := func(err error) {
		if r, e := d.room(); e == nil && !errors.Is(err, errRemoved) {
			err = fmt.Errorf("%w (%s has %s)", err, o.Dir, r)
		}
		select {
		case failed <- err:
		default: // the first one counts
		}
	}
	if o.care == nil {
		usual := usualMaintenance()
		o.care = &usual
	}
	server, err := startEtcd(embeddedConfig(o, newEtcdLogger(slog.Default(), fail)))
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	}
	b, err := useEmbedded(ctx, o, server, d, failed)
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	}
	b.work(ctx, o, server, fail)
	return b, nil
}

// useEmbedded waits until an etcd that has been started serves, and makes a client of it.
func useEmbedded(ctx context.Context, o Options, server *embed.Etcd, d *disk, failed chan error) (*Backend, error) {
	await := awaitEtcd
	if o.Member != nil {
		await = awaitMember
	}
	if err := await(ctx, server, failed); err != nil {
		return nil, err
	}
	if err := d.layOut(); err != nil {
		return nil, err
	}
	client := &kubernetes.Client{Client: v3client.New(server.Server)}
	client.Kubernetes = client
	reportProgress(client.Client, d)
	b := &Backend{Client: client, Failed: failed, disk: d, handOver: sync.OnceFunc(func() { handOver(server.Server) })}
	if o.Member != nil {
		b.etcd = server.Server
		if err := b.settle(ctx, o.Member); err != nil {
			return nil, err
		}
		// The leader writes more than the others.
		d.filled = func() {
			if err := server.Server.TryTransferLeadershipOnShutdown(); err != nil {
				slog.Warn("leadership could not be handed to a server with free disk space", "error", err)
			}
		}
	}
	b.shim = &endpointShim{Client: client.Client, name: "embedded:" + o.Dir}
	return b, b.unlessRemoved(func() error {
		feature.DefaultFeatureSupportChecker.CheckClient(ctx, b.shim, apistorage.RequestWatchProgress)
		return nil
	})
}

// work watches the disk, maintains the store and reports its end, until the Backend is closed.
func (b *Backend) work(ctx context.Context, o Options, server *embed.Etcd, fail func(error)) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { b.disk.watch(working) })
	work.Go(func() { b.maintain(working, *o.care, server.Server.Defragment) })
	work.Go(func() {
		select {
		case <-working.Done():
		case err := <-server.Err():
			fail(err)
		case <-server.Server.StopNotify():
			// If it has a reason of its own, that was delivered before.
			fail(stoppedBecause(o.Member))
		}
	})
	b.close = sync.OnceValue(func() error {
		stop()
		err := b.Client.Close()
		b.HandOver()
		b.shim.end()
		closeEtcd(server)
		work.Wait()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
}

// startEtcd turns what etcd panics with, when it can't read or write its files,
// into an error.
func startEtcd(config *embed.Config) (server *embed.Etcd, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	return embed.StartEtcd(config)
}

// awaitEtcd returns when the member answers.
func awaitEtcd(ctx context.Context, server *embed.Etcd, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return err
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	// memberName and peerURL name the only member of an embedded etcd. Nothing
	// listens there.
	memberName = "fairway"
	peerURL    = embed.DefaultListenPeerURLs
)

// smallSegments makes etcd lay out its log in pieces of 16 MiB, instead of 64 MB,
// of which there are two from the start.
var smallSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = 16 << 20 })

// embeddedConfig is a single member without listeners: nothing outside this
// process can reach it. The advertised URLs are names only.
func embeddedConfig(o Options, log *zap.Logger) *embed.Config {
	smallSegments()
	config := embed.NewConfig()
	config.Dir = o.Dir
	config.Name = memberName
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ListenClientUrls = nil
	config.ListenPeerUrls = nil
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	config.QuotaBackendBytes = o.care.quota
	config.MaxTxnOps = 4096
	// Elections have no rival here, and the start waits for one: up to ElectionMs, by chance.
	// etcd wants five ticks at least in it.
	config.TickMs = 20
	config.ElectionMs = 100
	if o.Member != nil {
		o.Member.configure(config)
	}
	return config
}

// endpointShim gives the in-process client an endpoint name: without one the
// library never learns that etcd reports watch progress, and then refuses
// streaming lists (WatchList) with an internal error.
type endpointShim struct {
	*clientv3.Client
	name string

	mu    sync.RWMutex
	ended bool
}

// errEnded is the answer of an etcd that is being closed.
var errEnded = errors.New("etcd is being closed")

// Status asks etcd, unless it is being closed: the library asks from a goroutine that nobody can wait
// for, and an etcd that is closed ends the process when it is asked.
func (s *endpointShim) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.ended {
		return nil, errEnded
	}
	return s.Client.Status(ctx, endpoint)
}

// end waits for what is asked, and has nothing asked any more.
func (s *endpointShim) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *endpointShim) Endpoints() []string { return []string{s.name} }
