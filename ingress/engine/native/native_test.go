package native

import (
	"context"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/conformance/engines"
)

// TestConformance holds the engine against the model.
func TestConformance(t *testing.T) {
	engines.Run(t, func(t *testing.T) engines.Engine {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}, nil)
}

// TestOptions are the options that all engines have.
func TestOptions(t *testing.T) {
	engines.RunOptions(t, func(t *testing.T, o engines.Options) engines.Engine {
		e, err := New(Options{PerClient: o.PerClient, Access: o.Access})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			e.Close(ctx)
		})
		return e
	})
}

// TestHTTP3 is the same by HTTP/3.
func TestHTTP3(t *testing.T) {
	engines.RunHTTP3(t, func(t *testing.T) engines.Engine {
		e, err := New(Options{HTTP3: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}
