package logdedup

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// TestSameIsSaidSeldom: a dozen watches that fail each second for six minutes make
// two lines, after a while; another cause is another line.
func TestSameIsSaidSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logr.FromSlogHandler(New(slog.NewTextHandler(&out, nil))).WithName("reflector")
		for second := range 360 {
			for _, kind := range []string{"Pod", "Node", "Service"} {
				log.Error(fmt.Errorf("failed to list *v1.%s: the server could not find the requested resource (get %s)", kind, kind), "Failed to watch", "type", kind)
			}
			if second == 8 && out.Len() > 0 {
				t.Errorf("said while a server may be restarting:\n%s", out.String())
			}
			time.Sleep(time.Second)
		}
		if got := strings.Count(out.String(), "\n"); got != 2 {
			t.Errorf("%d lines in six minutes, want 2:\n%s", got, out.String())
		}
		out.Reset()
		for range 3 { // servers that restart, each time for a moment
			time.Sleep(2 * time.Minute)
			for range 5 {
				log.Error(errors.New("connection refused"), "Failed to watch")
				time.Sleep(time.Second)
			}
		}
		if out.Len() > 0 {
			t.Errorf("said although it was over each time:\n%s", out.String())
		}
		log.Error(errors.New("permission denied"), "Failed to open")
		log.Error(errors.New("no such file"), "Failed to open")
		log.Error(errors.New("no such file"), "Failed to open")
		if got := strings.Count(out.String(), "\n"); got != 2 {
			t.Errorf("%d lines about two causes:\n%s", got, out.String())
		}
	})
}

// TestSaidAnew: what ended and comes back later is said.
func TestSaidAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(New(slog.NewTextHandler(&out, nil)))
		log.Warn("no answer", "error", "register node n1: Unauthorized")
		log.Warn("no answer", "error", "register node n2: Unauthorized")
		time.Sleep(Every + time.Second)
		log.Warn("no answer", "error", "register node n1: Unauthorized")
		if got := strings.Count(out.String(), "\n"); got != 2 {
			t.Errorf("%d lines, want 2:\n%s", got, out.String())
		}
	})
}
