package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"testing"

	"k8s.io/klog/v2"
)

// TestLogsAreJSONThroughout: also what libraries log.
func TestLogsAreJSONThroughout(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before); klog.ClearLogger() })
	var out bytes.Buffer
	SetAgent(slog.New(slog.NewJSONHandler(&out, nil)))
	slog.Info("ours")
	klog.ErrorS(errors.New("refused"), "Failed to open", "type", "v1.Service")
	klog.Warning("a warning")
	log.Print("of the standard library")
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if len(lines) != 4 {
		t.Errorf("%d lines, want 4", len(lines))
	}
	for _, line := range lines {
		if !json.Valid(line) {
			t.Errorf("not JSON: %s", line)
		}
	}
}
