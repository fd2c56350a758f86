package dns

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"
)

// TestReload changes an operator's own Corefile under a running server, which
// takes it up by the reload plugin; one that makes no sense changes nothing.
func TestReload(t *testing.T) {
	index := NewIndex(IndexConfig{Zone: "cluster.local"})
	index.SetService(clusterService("web", "10.96.1.1"))
	index.Synced()
	at := freeAddress()
	path := filepath.Join(t.TempDir(), "Corefile")
	service := netip.MustParseAddr("10.96.0.10") // which stands for where it listens
	write := func(host string) {
		t.Helper()
		text := fmt.Sprintf(".:%d {\n\tbind %s\n\tfairway\n\treload 2s 1s\n\thosts {\n\t\t%s\n\t}\n}\n", at.Port(), service, host)
		// In one step, so that no half of it is ever read.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("192.0.2.1 outside.example")
	s, err := Start(ServerConfig{
		Index: index, Path: path, Local: map[netip.Addr]netip.Addr{service: at.Addr()}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	resolves := func(want string) bool {
		if _, records := dig(t, at, "web.default.svc.cluster.local", "+noedns"); len(records) != 1 || records[0] != "5 A 10.96.1.1" {
			t.Fatalf("the cluster's names: %v", records)
		}
		_, records := dig(t, at, "outside.example")
		return len(records) == 1 && records[0] == "3600 A "+want
	}
	if !resolves("192.0.2.1") {
		t.Fatal("the Corefile is not in force at first")
	}
	write("192.0.2.2 outside.example\n\t\tno-such-option {")
	for range wait.Tries(5 * time.Second) {
		if !resolves("192.0.2.1") {
			t.Fatal("a Corefile that makes no sense is in force")
		}
	}
	write("192.0.2.3 outside.example")
	for late := range wait.Tries(30 * time.Second) {
		if resolves("192.0.2.3") {
			break
		}
		if late {
			t.Fatal("the next Corefile isn't taken up")
		}
	}
}
