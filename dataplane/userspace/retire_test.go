package userspace

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// TestRetire has a relay give up to another plane, whose work the test does
// without: what is established goes on, nothing new is taken in, and all is gone
// with the last connection.
func TestRetire(t *testing.T) {
	dir := t.TempDir()
	before := machine(t, dir)
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))})
	p := newPlane(t, dir)
	apply(t, p, table)
	old := relayPid(t, p)
	held := mustDial(t, "10.96.0.1:80")
	held.mustSay(t, "a")
	for range 2 { // an agent that starts anew does it again
		if err := p.Remove(t.Context(), kernel.HandOver); err != nil {
			t.Fatal(err)
		}
		p = newPlane(t, dir)
	}
	late := mustDial(t, "10.96.0.1:80")
	late.mustSay(t, "a")
	eventually(t, "nothing new is taken in", func() bool {
		c, err := dialEcho("10.96.0.1:80")
		if err == nil {
			discard(c.Close())
		}
		return err != nil
	})
	held.mustSay(t, "a")
	late.mustSay(t, "a")
	if hasEnded(old)() {
		t.Error("the relay ended before its connections")
	}
	for _, c := range []*client{held, late} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the relay has ended with its last connection", hasEnded(old))
	if diff := cmp.Diff(before, machine(t, dir)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// TestComeBack serves again while a relay that has retired still takes in what is on
// its way, and has connections: listeners are taken back, the routes are needed when
// those end, and Remove ends both.
func TestComeBack(t *testing.T) {
	dir := t.TempDir()
	before := machine(t, dir)
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a")))})
	p := newPlane(t, dir)
	apply(t, p, table)
	old := relayPid(t, p)
	first, second := mustDial(t, "10.96.0.1:80"), mustDial(t, "10.96.0.1:80")
	first.mustSay(t, "a")
	second.mustSay(t, "a")
	if err := p.Remove(t.Context(), kernel.HandOver); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(t.Context(), table, kernel.VerifyAll); err != nil {
		t.Fatalf("serve again at once: %v", err)
	}
	third := mustDial(t, "10.96.0.1:80")
	third.mustSay(t, "a")
	first.mustSay(t, "a")
	for _, c := range []*client{first, second} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the retired relay has ended", hasEnded(old))
	third.mustSay(t, "a")
	compare(t, p, table)
	if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Error(err)
	}
	third.mustEnd(t)
	if diff := cmp.Diff(before, machine(t, dir)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}
