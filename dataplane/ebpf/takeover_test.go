package ebpf

import (
	"testing"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/model"
)

// TestIdle: a flow that is left to netfilter is left no longer than netfilter
// remembers it.
func TestIdle(t *testing.T) {
	netfilter := idle{once: 27, stream: 105} // of 30 and 120 seconds
	for _, c := range []struct {
		flow              conntrack.Flow
		forgotten, silent uint32
	}{
		{conntrack.Flow{Proto: model.UDP, Expires: 30}, 27, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 30, Replied: true, Status: ipsSeenReply}, 27, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 8, Replied: true, Status: ipsSeenReply}, 27, 20},
		{conntrack.Flow{Proto: model.UDP, Expires: 120, Replied: true, Status: ipsSeenReply | ipsAssured}, 105, 0},
		{conntrack.Flow{Proto: model.UDP, Expires: 16, Replied: true, Status: ipsSeenReply | ipsAssured}, 105, 91},
		{conntrack.Flow{Proto: model.UDP, Replied: true}, 27, 27},
		{conntrack.Flow{Proto: model.TCP, Expires: 5}, 0, 0},
	} {
		if forgotten, silent := netfilter.of(&c.flow); uint32(forgotten) != c.forgotten || silent != c.silent {
			t.Errorf("%+v: forgotten after %d, silent for %d; expected %d and %d", c.flow, forgotten, silent, c.forgotten, c.silent)
		}
	}
}
