package kube

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestWarnings: each text is logged once, however often the API says it.
func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	w := NewWarnings(slog.New(slog.NewTextHandler(&out, nil)))
	for range 3 {
		w.HandleWarningHeader(299, "-", "the certificate was revoked")
		w.HandleWarningHeader(299, "-", "something else")
		w.HandleWarningHeader(199, "-", "of a cache")
		w.HandleWarningHeader(299, "-", "")
	}
	if got := strings.Count(out.String(), "\n"); got != 2 || strings.Count(out.String(), "revoked") != 1 {
		t.Errorf("%d lines, want 2:\n%s", got, out.String())
	}
	for i := range 3 * mostWarnings {
		w.HandleWarningHeader(299, "-", fmt.Sprint(i))
	}
	if len(w.said) > mostWarnings {
		t.Errorf("%d texts are remembered", len(w.said))
	}
}
