//go:build grpc

package engines

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/engine/haproxy"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/test/conformance/engines"
)

// TestGRPC is run by `make check NAME=grpc`, which says where the programs are.
func TestGRPC(t *testing.T) {
	for name, start := range map[string]func() (engines.Engine, error){
		Native:  func() (engines.Engine, error) { return native.New(native.Options{}) },
		HAProxy: func() (engines.Engine, error) { return haproxy.New(haproxy.Options{Drain: time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := start()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(context.Background())
			engines.GRPC(t, e, os.Getenv("GRPC_CLIENT"), os.Getenv("GRPC_SERVER"))
		})
	}
}
