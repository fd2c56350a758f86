package native

import (
	"testing"

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
