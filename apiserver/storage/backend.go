// Package storage connects the API server to etcd: embedded in this process,
// or an existing cluster.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
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
	// Logger receives what etcd has to say; nil discards it.
	Logger *zap.Logger
}

// Backend is an open connection to etcd.
type Backend struct {
	Client *kubernetes.Client
	// Failed delivers the error with which an embedded etcd stopped by itself.
	Failed <-chan error
	close  func() error
}

// startTimeout bounds the wait for etcd to answer; replaying a large log
// on a slow disk takes a while.
const startTimeout = 60 * time.Second

// Open starts or reaches etcd and returns when it answers.
func Open(ctx context.Context, o Options) (*Backend, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
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
		Logger:               o.Logger,
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
	if _, err := client.Client.Get(ctx, "/health"); err != nil {
		return nil, errors.Join(fmt.Errorf("reach etcd at %v: %w", o.Servers, err), client.Close())
	}
	return &Backend{Client: client, close: client.Close}, nil
}

func startEmbedded(ctx context.Context, o Options) (*Backend, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create etcd data directory: %w", err)
	}
	server, err := embed.StartEtcd(embeddedConfig(o))
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	case <-ctx.Done():
		server.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, ctx.Err())
	}
	client := &kubernetes.Client{Client: v3client.New(server.Server)}
	client.Kubernetes = client
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, endpointShim{client.Client, "embedded:" + o.Dir}, apistorage.RequestWatchProgress)
	return &Backend{
		Client: client,
		Failed: server.Err(),
		close: func() error {
			err := client.Close()
			server.Close()
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		},
	}, nil
}

// embeddedConfig is a single member without listeners: nothing outside this
// process can reach it. The advertised URLs are names only.
func embeddedConfig(o Options) *embed.Config {
	config := embed.NewConfig()
	config.Dir = o.Dir
	config.Name = "fairway"
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.ListenClientUrls = nil
	config.ListenPeerUrls = nil
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(o.Logger)
	config.QuotaBackendBytes = 8 << 30
	config.MaxTxnOps = 4096
	// Elections have no rival here; a short timeout makes starting quick.
	config.TickMs = 50
	config.ElectionMs = 500
	return config
}

// endpointShim gives the in-process client an endpoint name: without one the
// library never learns that etcd reports watch progress, and then refuses
// streaming lists (WatchList) with an internal error.
type endpointShim struct {
	*clientv3.Client
	name string
}

func (s endpointShim) Endpoints() []string { return []string{s.name} }
