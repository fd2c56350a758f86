package bfd

import (
	"bytes"
	"testing"
	"time"

	"github.com/fairway-net/fairway/announce"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func settings() announce.BFD {
	return announce.BFD{Profile: "fast", Receive: 50 * time.Millisecond, Transmit: 50 * time.Millisecond, Multiplier: 3, MinimumTTL: 254}
}

// exchange sends packets to and fro until nobody has to answer.
func exchange(now time.Time, a, b *machine) {
	p := a.packet(false)
	for range 10 {
		if !b.receive(now, p) {
			return
		}
		a, b, p = b, a, b.packet(p.Poll)
	}
}

func TestHandshake(t *testing.T) {
	a, b := newMachine(settings(), 1), newMachine(settings(), 2)
	if a.desired() != slow {
		t.Errorf("a session that is down sends every %v", a.desired())
	}
	exchange(start, a, b)
	if a.state != Up || b.state != Up {
		t.Fatalf("states %v and %v", a.state, b.state)
	}
	exchange(start, a, b)
	exchange(start, b, a)
	if a.polling || b.polling {
		t.Error("the new intervals are not confirmed")
	}
	if a.interval() != 50*time.Millisecond || a.deadline() != start.Add(150*time.Millisecond) {
		t.Errorf("interval %v, deadline %v", a.interval(), a.deadline())
	}
}

func up() (a, b *machine) {
	a, b = newMachine(settings(), 1), newMachine(settings(), 2)
	exchange(start, a, b)
	exchange(start, a, b)
	return a, b
}

func TestSilence(t *testing.T) {
	a, _ := up()
	if a.expire(start.Add(149*time.Millisecond)) || a.state != Up {
		t.Error("down too early")
	}
	if !a.expire(start.Add(150*time.Millisecond)) || a.state != Down || a.diagnostic != diagTimeout {
		t.Errorf("state %v, %v", a.state, a.diagnostic)
	}
}

func TestNeighbor(t *testing.T) {
	for _, theirs := range []State{Down, AdminDown} {
		a, b := up()
		b.to(theirs, diagAdminDown)
		a.receive(start, b.packet(false))
		if a.state != Down || a.diagnostic != diagNeighborDown || a.remoteState != theirs {
			t.Errorf("a router that says %v: state %v, %v", theirs, a.state, a.diagnostic)
		}
	}
}

// An agent that begins anew goes on with the session, unless it has said already
// that it knows of none.
func TestResume(t *testing.T) {
	_, b := up()
	again := newMachine(settings(), 1)
	exchange(start, b, again)
	if again.state != Up || b.state != Up {
		t.Errorf("states %v and %v", again.state, b.state)
	}
	late := newMachine(settings(), 1)
	late.packet(false)
	late.receive(start, b.packet(false))
	if late.state == Up {
		t.Error("a session that was said to be down resumes")
	}
	stranger := newMachine(settings(), 7)
	stranger.receive(start, b.packet(false))
	if stranger.state == Up {
		t.Error("another session resumes")
	}
}

func TestPassive(t *testing.T) {
	s := settings()
	s.Passive = true
	a := newMachine(s, 1)
	if a.interval() != 0 {
		t.Error("a passive side begins")
	}
	a.receive(start, newMachine(settings(), 2).packet(false))
	if a.interval() == 0 {
		t.Error("a passive side does not answer")
	}
	a.remoteReceive = 0
	if a.interval() != 0 {
		t.Error("a router that wants no packets gets some")
	}
}

// TestDemand: a router in demand mode gets no periodic packets while both sides are up.
func TestDemand(t *testing.T) {
	a, b := up()
	p := b.packet(false)
	p.Demand = true
	a.receive(start, p)
	if a.interval() != 0 {
		t.Errorf("packets go out every %s", a.interval())
	}
	a.polling = true
	if a.interval() == 0 {
		t.Error("a question isn't repeated")
	}
	a.polling = false
	p.State = Down
	a.receive(start, p)
	if a.interval() == 0 {
		t.Error("a session that is down sends nothing")
	}
}

// TestStall: an agent that was stopped looks first at what came meanwhile; it grants that once.
func TestStall(t *testing.T) {
	a, b := up()
	r := &running{machine: a, packets: make(chan packet, 1)}
	deadline := a.deadline()
	if r.mayHaveSlept(deadline) {
		t.Error("in time, and taken for late")
	}
	r.packets <- b.packet(false)
	if !r.mayHaveSlept(deadline) {
		t.Error("a packet waits, and the router counts as silent")
	}
	<-r.packets
	late := deadline.Add(time.Second)
	if !r.mayHaveSlept(late) || r.mayHaveSlept(late.Add(catchUp)) {
		t.Error("one moment is to be granted")
	}
}

func TestPacket(t *testing.T) {
	p := packet{
		Diagnostic: diagTimeout, State: Up, Poll: true, Independent: true, Multiplier: 3, My: 1, Your: 0x01020304,
		DesiredTransmit: 50 * time.Millisecond, RequiredReceive: time.Second,
	}
	want := []byte{0x21, 0xe8, 3, 24, 0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0xc3, 0x50, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0}
	if got := p.marshal(); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant % x", got, want)
	}
	if got, err := parse(want); err != nil || got != p {
		t.Errorf("%+v, %v", got, err)
	}
	bad := map[string]func([]byte){
		"version": func(b []byte) { b[0] = 0x41 }, "length": func(b []byte) { b[3] = 23 }, "longer than it is": func(b []byte) { b[3] = 25 },
		"multiplier": func(b []byte) { b[2] = 0 }, "discriminator": func(b []byte) { b[7] = 0 },
		"authentication": func(b []byte) { b[1] |= flagAuthentication }, "multipoint": func(b []byte) { b[1] |= flagMultipoint },
		"poll and final": func(b []byte) { b[1] |= flagFinal }, "up without a discriminator": func(b []byte) { clear(b[8:12]) },
	}
	for name, spoil := range bad {
		b := bytes.Clone(want)
		spoil(b)
		if _, err := parse(b); err == nil {
			t.Errorf("taken in with a wrong %s", name)
		}
	}
}

func FuzzPacket(f *testing.F) {
	a, b := up()
	f.Add(marshalled(a.packet(false)))
	f.Add(marshalled(b.packet(true)))
	f.Add([]byte("BFD"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parse(text)
		if err != nil {
			return
		}
		again, err := parse(p.marshal())
		if err != nil || again != p {
			t.Errorf("%+v is read again as %+v: %v", p, again, err)
		}
		m, _ := up()
		m.receive(start, p)
		m.expire(start.Add(time.Hour))
		if i := m.interval(); i < 0 {
			t.Errorf("interval %v", i)
		}
	})
}

func marshalled(p packet) []byte { return p.marshal() }
