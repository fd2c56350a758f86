package native

import (
	"context"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/engine/conformance"
)

// TestConformance holds the engine against the model.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Engine {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}, nil)
}

// TestOptions are the options that all engines have.
func TestOptions(t *testing.T) {
	conformance.RunOptions(t, func(t *testing.T, o conformance.Options) conformance.Engine {
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
	conformance.RunHTTP3(t, func(t *testing.T) conformance.Engine {
		e, err := New(Options{HTTP3: true})
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}
