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
