package conntrack

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
)

// TestExplain: a kernel has nf_tables without NAT where it has no module of it: ebpf mode goes on
// without the table then.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err     error
		verb    string
		missing bool
	}{
		{unix.ENOENT, "add", true}, {unix.ENOENT, "find", false},
		{unix.EOPNOTSUPP, "add", true}, {unix.EPERM, "add", false}, {nil, "add", false},
	} {
		if got := kernel.IsMissing(explain(c.err, c.verb, "table")); got != c.missing {
			t.Errorf("%s: %v: lacks NAT %v, want %v", c.verb, c.err, got, c.missing)
		}
	}
}
