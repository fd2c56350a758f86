package identity

import (
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/revocation"
)

// TestCircumstance: a machine that is locked out is told when that was, and if it was for want of a Node.
func TestCircumstance(t *testing.T) {
	at := time.Date(2026, 11, 28, 3, 11, 26, 0, time.UTC)
	for _, c := range []struct {
		entry       revocation.Entry
		says, hides string
	}{
		{revocation.Entry{All: true}, "", " at "},
		{revocation.Entry{Until: at}, " at 2026-11-28T03:11:26Z", "Node"},
		{revocation.Entry{Until: at, Gone: true}, " at 2026-11-28T03:11:26Z, since it had no Node", "\n"},
	} {
		if got := circumstance(c.entry); !strings.Contains(got, c.says) || strings.Contains(got, c.hides) {
			t.Errorf("%v: %q, want %q", c.entry, got, c.says)
		}
	}
}
