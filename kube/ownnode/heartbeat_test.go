package ownnode

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/fairway-net/fairway/internal/logdedup"
)

// TestHeartbeatsFailQuietly: of failures that come several times a second, one in
// five minutes is logged, and none of those that are soon over.
func TestHeartbeatsFailQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		handler := failures{logdedup.New(slog.NewTextHandler(&out, nil))}
		log := logr.FromSlogHandler(handler).WithValues("lease", "n1").WithName("x")
		for range 2000 {
			log.Info("trying another way")
			log.Error(errors.New("connection refused"), "Failed to ensure lease exists, will retry")
			time.Sleep(200 * time.Millisecond)
		}
		if got := strings.Count(out.String(), "\n"); got != 2 || strings.Count(out.String(), "level=WARN") != 2 || !strings.Contains(out.String(), "refused") {
			t.Errorf("%d lines in six minutes, want 2 warnings:\n%s", got, out.String())
		}
	})
}
