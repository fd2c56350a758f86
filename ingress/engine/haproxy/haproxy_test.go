package haproxy

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/conformance/engines"
)

// newEngine starts an engine whose log is the test's.
func newEngine(t *testing.T, options Options) *Engine {
	t.Helper()
	options.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	e, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestConformance holds the engine against the model.
func TestConformance(t *testing.T) {
	engines.Run(t, func(t *testing.T) engines.Engine { return newEngine(t, Options{Drain: 10 * time.Second}) }, otherwise)
}

// TestOptions are the options that all engines have.
func TestOptions(t *testing.T) {
	engines.RunOptions(t, func(t *testing.T, o engines.Options) engines.Engine {
		e := newEngine(t, Options{PerClient: o.PerClient, Access: o.Access, Drain: time.Second})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			e.Close(ctx)
		})
		return e
	})
}

// otherwise is what haproxy answers otherwise.
var otherwise = engines.Otherwise{
	"Unread":                         "haproxy closes the connection with its own answer, and resets it where a body still comes",
	"a timeout of the whole":         "haproxy has none: see Lacks",
	"a connection broken off":        "a client that has asked before on its connection has that closed, in place of a 502: it may ask again (RFC 9112, 9.3.1)",
	"names of clients' certificates": "not looked at: see Lacks",
	"trailers of requests":           "all of them pass: see Lacks",
	"two hosts in HTTP/2":            "the header is left out for the authority",
	"an absolute form":               "refused where its host is another than that of the header",
	"chunks in version 1.0":          "refused",
	"two spaces":                     "taken for one (RFC 9112, 3)",
	"a tab":                          "taken for a space (RFC 9112, 3)",
	"equal lengths in a list":        "taken for one (RFC 9110, 8.6)",
	"chunk extension with LF":        "a LF ends a line",
	"chunk ended by LF":              "a LF ends a line",
	"version 9":                      "taken for 1.1",
}
