package storage

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
)

// TestEtcdRepeatsItself: an error that etcd has with each attempt is one line, and its
// warnings are none.
func TestEtcdRepeatsItself(t *testing.T) {
	var out strings.Builder
	log := newEtcdLogger(slog.New(slog.NewTextHandler(&out, nil)), func(error) {})
	for range 10 {
		log.Error("failed to promote a member", zap.Error(errors.New("no leader")))
		log.Error(notReady)
		log.Warn("slow disk")
	}
	log.Error("failed to read", zap.Error(errors.New("no leader")))
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines, want one about each error:\n%s", got, out.String())
	}
}
