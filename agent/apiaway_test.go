package agent

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
		a := &apiAway{log: slog.New(slog.NewTextHandler(&log, nil))}
		defer a.close()
		refused := errors.New("connection refused")
		a.observe(nil)
		a.observe(refused)
		time.Sleep(awayPatience / 2)
		synctest.Wait()
		a.observe(nil)
		time.Sleep(2 * awayPatience)
		synctest.Wait()
		if log.Len() > 0 || a.away() != 0 {
			t.Errorf("away for %s after a short failure: %s", a.away(), log.String())
		}
		for range 10 {
			a.observe(refused)
			time.Sleep(awayPatience)
			synctest.Wait()
		}
		if text := log.String(); strings.Count(text, "does not answer") != 1 || !strings.Contains(text, "refused") || a.away() != 10*awayPatience {
			t.Errorf("away for %s: %s", a.away(), text)
		}
		a.observe(nil)
		a.observe(nil)
		if text := log.String(); strings.Count(text, "answers again\" away=50s") != 1 || a.away() != 0 {
			t.Errorf("back: %s", text)
		}
	})
}
