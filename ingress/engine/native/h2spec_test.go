//go:build h2spec

package native

import (
	"context"
	"os"
	"testing"

	"github.com/fairway-net/fairway/test/conformance/engines"
)

// TestH2spec is run by `make check NAME=h2spec`, which says where the program is.
func TestH2spec(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	engines.H2spec(t, e, os.Getenv("H2SPEC"))
}
