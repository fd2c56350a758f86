package iptables

import (
	"bytes"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
)

// TestLegacyWritesTablesOnce counts how often the kernel's tables are replaced
// at start: the legacy variant reads and writes all of a table for each block,
// and a table of 10,000 Services costs a second of the kernel's time.
func TestLegacyWritesTablesOnce(t *testing.T) {
	full := cluster(200, 5)
	s := newState(iptables.IPv4, defaultMark, full.Settings)
	s.load(full)
	for _, natFirst := range []bool{false, true} {
		p := s.replace(nil)
		p.jumps, p.natFirst = jumps(), natFirst
		inputs := p.inputs(iptables.Legacy)
		if len(inputs) != 1 {
			t.Fatalf("%d runs of iptables-restore, want 1", len(inputs))
		}
		if n := bytes.Count(inputs[0], []byte("*nat\n")); n != 1 {
			t.Errorf("table nat is written %d times, want once", n)
		}
		first := bytes.Index(inputs[0], []byte("*nat\n")) < bytes.Index(inputs[0], []byte("*filter\n"))
		if first != natFirst {
			t.Errorf("nat comes before filter: %t, want %t", first, natFirst)
		}
		s = newState(iptables.IPv4, defaultMark, full.Settings)
		s.load(full)
	}
}
