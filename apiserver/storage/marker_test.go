package storage

import (
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// TestMarker: a store with somebody else's objects is refused; with a prefix it
// can be shared, and keys don't mix.
func TestMarker(t *testing.T) {
	address := startServer(t)
	open := func(prefix string) (*Backend, error) {
		return Open(t.Context(), Options{Servers: []string{address}, Prefix: prefix})
	}
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := other.Put(t.Context(), "/registry/pods/default/theirs", "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := open(""); err == nil || !strings.Contains(err.Error(), "/registry/pods/default/theirs") || !strings.Contains(err.Error(), "--etcd-prefix") {
		t.Errorf("opened a store of somebody else: %v, %v", b, err)
	}
	for range 2 {
		b, err := open("/fairway-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Client.Client.Put(t.Context(), "/registry/ours", "y"); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a server that ends slowly closes it twice
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	resp, err := other.Get(t.Context(), "/fairway-1/registry/ours")
	if err != nil || resp.Count != 1 {
		t.Errorf("key with prefix: %v, %v", resp, err)
	}
}

// startServer runs an etcd that others connect to.
func startServer(t *testing.T) string {
	t.Helper()
	config := embed.NewConfig()
	smallSegments() // before anything runs: it is the whole process's
	config.Dir = t.TempDir()
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.ListenPeerUrls = []url.URL{free}, nil
	server, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	return "http://" + server.Clients[0].Addr().String()
}
