package server

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// TestEndInTime: a server that is asked to end does, whatever hangs, and one that
// isn't asked goes on; its own error is told.
func TestEndInTime(t *testing.T) {
	asked, ask := context.WithCancel(t.Context())
	var out bytes.Buffer
	failed := errors.New("the disk is gone")
	if err := endInTime(asked, &out, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a server that ended by itself: %v", err)
	}
	if out.Len() > 0 {
		t.Errorf("it said %q", out.String())
	}
	ask()
	hangs := make(chan struct{})
	defer close(hangs)
	err := endInTime(asked, &out, func() error {
		<-hangs
		return nil
	})
	if err != nil || !strings.Contains(out.String(), "ended without waiting") {
		t.Errorf("a server that hangs: %v, and it said %q", err, out.String())
	}
}
