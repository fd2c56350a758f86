//go:build !race

package l2

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/announce/core"
)

// TestTakeOver: exactly one node answers, in both families, whoever loses power,
// ends, or loses its link.
func TestTakeOver(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.start("a")
	l.start("b")
	l.awaitOwners()

	l.cutPower("a")
	l.expectOwners("b")
	l.setLink("a", true) // without an agent, but for what the kernel has
	l.expectOwners("b")
	l.start("a")
	l.stays("b", "the former owner is back", 5*core.Interval)

	// One that ends in order hands over.
	l.end("b", handsOver)
	l.expectOwners("a")
	l.start("b")
	l.stays("a", "the former owner is back", 5*core.Interval)

	l.setLink("a", false)
	l.expectOwners("b")
	l.setLink("a", true)
	l.stays("b", "the former owner is back", 10*core.Interval)
}

// TestOneWay: where frames of the owner are lost on their way to the other node, and not the
// other way round, the later claim counts, and one node answers, also when all is well again.
func TestOneWay(t *testing.T) {
	requireTools(t)
	l := newLAN(t)
	l.firstAlone()
	var mac string
	for m, name := range l.macs {
		if name == "a" {
			mac = m
		}
	}
	rules := "table netdev cut { chain to-b { type filter hook egress device to-b priority 0; ether saddr " + mac + " drop; }; }"
	nft := func(input string) {
		t.Helper()
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin, cmd.Stderr = strings.NewReader(input), l.Output()
		l.must(l.hub.Start(cmd))
		l.must(cmd.Wait())
	}
	nft(rules)
	l.expectOwners("b")
	l.stays("b", "frames of a are lost", 10*core.Interval)
	nft("delete table netdev cut")
	l.stays("b", "all is well again", 10*core.Interval)
	l.expectOwners("b")
}
