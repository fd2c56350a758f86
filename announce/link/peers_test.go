package link

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func mac(i int) [6]byte { return [6]byte{2, 0, 0, 0, byte(i >> 8), byte(i)} }

// TestPeers: old frames are not taken in; a node has one MAC, its last one; nodes that are gone
// are forgotten, and there are never more than a link may have.
func TestPeers(t *testing.T) {
	p, now := NewPeers("self"), time.Unix(1e9, 0)
	for _, c := range []struct {
		node                  string
		incarnation, sequence uint64
		mac                   int
		ok, isNew             bool
	}{
		{"a", 5, 1, 1, true, true}, {"a", 5, 2, 1, true, false}, {"a", 5, 2, 1, false, false}, {"a", 5, 1, 1, false, false}, {"a", 4, 9, 1, false, false},
		{"a", 6, 1, 1, true, false}, {"a", 6, 2, 2, true, true}, {"b", 1, 1, 1, true, true}, {"a", 6, 3, 1, true, true}, {"b", 1, 2, 1, true, true},
		{"self", 9, 1, 3, false, false},
	} {
		h := &Head{Node: c.node, Incarnation: c.incarnation, Sequence: c.sequence, MAC: mac(c.mac)}
		if ok, isNew := p.Admit(now, h); ok != c.ok || isNew != c.isNew {
			t.Errorf("%+v: %t, new %t", c, ok, isNew)
		}
	}
	one := mac(1)
	if got := p.NodeOf(one[:]); got != "b" || len(p.byMAC) != 1 {
		t.Errorf("%q has the MAC, of %d", got, len(p.byMAC))
	}
	for i := range 2 * mostPeers {
		p.Admit(now, &Head{Node: fmt.Sprint("node-", i), Incarnation: 1, Sequence: 1, MAC: mac(i + 10)})
	}
	if len(p.byNode) != mostPeers || len(p.byMAC) > mostPeers {
		t.Errorf("%d nodes and %d MACs are known, of at most %d", len(p.byNode), len(p.byMAC), mostPeers)
	}
	p.Answered(now.Add(forgottenAfter), one[:])
	p.Expire(now.Add(forgottenAfter + time.Second))
	if len(p.byNode) != 1 || p.MACOf("b") == nil || len(p.byMAC) != 1 || len(p.MACs()) != 1 {
		t.Errorf("%d nodes and %d MACs are known, want the one whose kernel answers", len(p.byNode), len(p.byMAC))
	}
}

// TestOut: a node that hasn't signed since a key was dropped is out after a while, and no node
// is while a key is only added.
func TestOut(t *testing.T) {
	k := NewKeys(oldKey)
	if k.Set(newKey, oldKey); !k.Dropped().IsZero() {
		t.Error("a key counts as dropped that is good")
	}
	k.Set(newKey)
	dropped := k.Dropped()
	p := NewPeers("self")
	p.Admit(dropped.Add(-time.Second), &Head{Node: "out", Incarnation: 1, Sequence: 1, MAC: mac(1)})
	p.Admit(dropped.Add(-time.Second), &Head{Node: "in", Incarnation: 1, Sequence: 1, MAC: mac(2)})
	p.Admit(dropped.Add(time.Second), &Head{Node: "in", Incarnation: 1, Sequence: 2, MAC: mac(2)})
	one := mac(1)
	p.Answered(dropped.Add(time.Second), one[:])
	if got := p.Out(dropped.Add(outAfter-1), dropped, k.IsOut); len(got) > 0 {
		t.Errorf("%v have no time to learn of the key", got)
	}
	if got := p.Out(dropped.Add(outAfter), dropped, k.IsOut); len(got) != 1 || !bytes.Equal(got["out"], one[:]) || p.NodeOf(one[:]) != "" {
		t.Errorf("%v are out", got)
	}
	if got := p.Out(dropped.Add(time.Hour), time.Time{}, k.IsOut); len(got) > 0 {
		t.Errorf("%v are out, and no key was dropped", got)
	}
	two := mac(2)
	if fresh := k.SetOut([]string{"in"}); !slices.Equal(fresh, []string{"in"}) || len(k.SetOut([]string{"in"})) > 0 {
		t.Errorf("%q are newly out", fresh)
	}
	if got := p.Out(dropped, time.Time{}, k.IsOut); len(got) != 1 || !bytes.Equal(got["in"], two[:]) {
		t.Errorf("%v are out, want the node that was deleted", got)
	}
	if k.SetOut(nil); k.IsOut("in") {
		t.Error("a node that is back is out")
	}
}

// TestIncarnations: numbers go up whatever the clock does, also over a restart.
func TestIncarnations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "announcer-n")
	var last uint64
	for _, now := range []time.Time{time.Unix(1e9, 0), time.Unix(1e9, 0), time.Unix(1e9-3600, 0), {}, time.Unix(1e9+1, 0)} {
		i, err := NewIncarnations(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			next, err := i.Next(now)
			if err != nil {
				t.Fatal(err)
			}
			if next <= last {
				t.Errorf("at %s: %d after %d", now, next, last)
			}
			last = next
		}
	}
	if last != uint64(time.Unix(1e9+1, 0).UnixNano())+1 {
		t.Errorf("the clock is no longer followed: %d", last)
	}
}

// TestBelieved: a frame is taken in only if its own sender sends it, for the first time, with
// a key of the cluster. Nothing is kept of others but who signs with another key.
func TestBelieved(t *testing.T) {
	c := &Cluster{Node: "self", Keys: keys, Foreign: &Foreign{}}
	heard := 0
	c.Foreign.Heard = func() { heard++ }
	p, taken := NewPeers("self"), 0
	read := format.Reader(c, p, func(time.Time, *Message[byte], bool) { taken++ })
	send := func(from int, m *Message[byte], by *Keys) bool {
		b, err := format.Marshal(m, by)
		if err != nil {
			t.Fatal(err)
		}
		source := mac(from)
		take := read(time.Unix(1e9, 0), append(Ethernet(make(net.HardwareAddr, 6), source[:], 0x88b5), b...))
		return take != nil && take()
	}
	m := func(sequence uint64) *Message[byte] {
		return &Message[byte]{Head: Head{Node: "n", Incarnation: 1, Sequence: sequence, MAC: mac(1)}}
	}
	stranger := NewKeys([]byte("another"))
	for _, c := range []struct {
		what string
		from int
		m    *Message[byte]
		by   *Keys
		ok   bool
	}{
		{"the sender's", 1, m(2), keys, true}, {"once more", 1, m(2), keys, false}, {"an older one", 1, m(1), keys, false},
		{"from another MAC", 2, m(3), keys, false}, {"a stranger's", 1, m(4), stranger, false}, {"the next one", 1, m(3), keys, true},
	} {
		if ok := send(c.from, c.m, c.by); ok != c.ok {
			t.Errorf("%s: taken in %t", c.what, ok)
		}
	}
	for i := range 3 * mostForeign {
		for range 2 {
			send(100+i, &Message[byte]{Head: Head{Node: fmt.Sprint("x", i), MAC: mac(100 + i)}}, stranger)
		}
	}
	if got := len(c.Foreign.Senders(time.Unix(1e9, 0))); taken != 2 || len(p.byNode) != 1 || got != mostForeign || heard != mostForeign {
		t.Errorf("%d frames are taken in and %d nodes known; %d strangers are named, %d times", taken, len(p.byNode), got, heard)
	}
	if got := c.Foreign.Senders(time.Unix(1e9, 0).Add(2 * foreignFor)); len(got) != 0 {
		t.Errorf("%v are named for ever", got)
	}
}

// TestBudget: of a source that sends bad frames few are looked at, whatever it sends, and of
// all sources together too; a node's own are still heard.
func TestBudget(t *testing.T) {
	b, now := newBudget(), time.Unix(1e9, 0)
	b.pass(now)
	looked := 0
	for i := range 200_000 {
		if source := mac(i % 1000); b.has(source, false) {
			looked++
			b.spend(source)
		}
	}
	if most := mostSources*badOfStranger + floodedAt; looked > most || len(b.sources) > mostSources {
		t.Errorf("%d frames are looked at, of at most %d, and %d sources kept", looked, most, len(b.sources))
	}
	if !b.has(mac(5000), true) {
		t.Error("a node isn't heard")
	}
	if b.pass(now.Add(window)) == 0 || !b.has(mac(1), false) {
		t.Error("the next window is no new one")
	}
}
