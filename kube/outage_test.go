package kube

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAPIAwayIsSaid: once when the API goes for longer than a restart takes, once
// when it is back.
func TestAPIAwayIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := &Outage{Log: slog.New(slog.NewTextHandler(&log, nil))}
		defer a.Close()
		refused := errors.New("connection refused")
		a.Observe(nil)
		a.Observe(refused)
		time.Sleep(outageGrace / 2)
		synctest.Wait()
		a.Observe(nil)
		time.Sleep(2 * outageGrace)
		synctest.Wait()
		if log.Len() > 0 || a.Away() != 0 {
			t.Errorf("away for %s after a short failure: %s", a.Away(), log.String())
		}
		for range 10 {
			a.Observe(refused)
			time.Sleep(outageGrace)
			synctest.Wait()
		}
		if text := log.String(); strings.Count(text, "does not answer") != 1 || !strings.Contains(text, "refused") || a.Away() != 10*outageGrace {
			t.Errorf("away for %s: %s", a.Away(), text)
		}
		a.Observe(nil)
		a.Observe(nil)
		if text := log.String(); strings.Count(text, "answers again\" outage=50s") != 1 || a.Away() != 0 {
			t.Errorf("back: %s", text)
		}
	})
}
