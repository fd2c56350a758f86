package httpports

import (
	"net/http"
	"testing"
)

// TestIdleConnections: one that says no more is closed; ports may be open to strangers.
func TestIdleConnections(t *testing.T) {
	ports := New()
	opened, err := ports.Serve(t.Context(), "metrics", "127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if opened.server.IdleTimeout == 0 {
		t.Error("connections of strangers are kept")
	}
	if err := ports.Keep(); err != nil {
		t.Error(err)
	}
}
