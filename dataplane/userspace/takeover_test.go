package userspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// ofBuild is a plane of another binary.
func ofBuild(t *testing.T, stateDir, build string) *Plane {
	t.Helper()
	p := newPlane(t, stateDir)
	p.build = build
	return p
}

// TestTakeover replaces a relay by another binary's under load.
func TestTakeover(t *testing.T) {
	dir := t.TempDir()
	dnsA, _ := udpBackend(t, "d")
	dnsB, _ := udpBackend(t, "e")
	dns := pool("dns", model.UDP, dnsA, dnsB)
	sticky := pool("sticky", model.TCP)
	sticky.Affinity = time.Hour
	for i := range 8 {
		sticky.Backends = append(sticky.Backends, pool("", model.TCP, tcpBackend(t, echo(fmt.Sprint("s", i)))).Backends...)
	}
	table := tableOf(map[string]*model.Pool{
		"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a"))), "10.96.0.1:53": dns, "10.96.0.1:81": sticky,
	})
	p := newPlane(t, dir)
	apply(t, p, table)
	old := relayPid(t, p)
	held, u := mustDial(t, "10.96.0.1:80"), dialUDP(t, "10.96.0.1:53")
	held.mustSay(t, "a")
	was := exchange(t, u)
	belongs := mustDial(t, "10.96.0.1:81")
	home, err := belongs.say()
	if err := errors.Join(err, belongs.Close()); err != nil {
		t.Fatal(err)
	}
	stop := connectAllTheTime("10.96.0.1:80")
	for i := range 3 {
		p = ofBuild(t, dir, fmt.Sprint("build ", i))
		apply(t, p, table)
		held.mustSay(t, "a")
		if is := exchange(t, u); is != was {
			t.Errorf("the UDP flow is %q now, was %q", is, was)
		}
		mustDial(t, "10.96.0.1:81").mustSay(t, home)
	}
	if n, err := stop(); err != nil || n == 0 {
		t.Errorf("%d connections during the takeovers, then %v", n, err)
	}
	compare(t, p, table)
	if hasEnded(old)() {
		t.Error("the first relay ended before its connections")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first relay has ended with its last connection", hasEnded(old))
}

// TestWaitingDatagrams has datagrams of a relay's clients wait while another takes
// its place: they belong to the sessions that there are.
func TestWaitingDatagrams(t *testing.T) {
	a, _ := udpBackend(t, "a")
	b, _ := udpBackend(t, "b")
	table := tableOf(map[string]*model.Pool{vip: pool("dns", model.UDP, a, b)})
	before := inProcess(t)
	applyTo(t, before, table)
	was := map[*net.UDPConn]string{}
	for range 50 {
		conn := dialUDP(t, vip)
		was[conn] = exchange(t, conn)
	}
	list, descriptors, err := before.retire()
	if err != nil {
		t.Fatal(err)
	}
	for conn := range was {
		if _, err := conn.Write([]byte("waiting")); err != nil {
			t.Fatal(err)
		}
	}
	var files []*os.File
	for _, fd := range descriptors {
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	after := inProcess(t)
	if err := after.inherit(reply{Given: list, Delta: table.Delta(nil)}, files); err != nil {
		t.Fatal(err)
	}
	before.closeListeners()
	answer := make([]byte, 2048)
	for conn, home := range was {
		if err := conn.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(answer)
		if is := string(answer[:n]); err != nil || is != home {
			t.Errorf("a datagram that waited was answered by %q (%v), the session's are by %q", is, err, home)
		}
	}
}

// connectAllTheTime connects and talks until it is told to stop, or fails.
func connectAllTheTime(where string) (stop func() (int, error)) {
	var stopped atomic.Bool
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		for n := 0; ; n++ {
			if stopped.Load() {
				done <- result{n, nil}
				return
			}
			c, err := dialEcho(where)
			if err == nil {
				_, err = c.say()
				err = errors.Join(err, c.Close())
			}
			if err != nil {
				done <- result{n, err}
				return
			}
		}
	}()
	return func() (int, error) { stopped.Store(true); r := <-done; return r.n, r.err }
}

// TestPredecessors has two relays with connections before the one that runs:
// they follow the table, and Remove ends them.
func TestPredecessors(t *testing.T) {
	dir := t.TempDir()
	before := machine(t, dir)
	a, b, c := tcpBackend(t, echo("a")), tcpBackend(t, echo("b")), tcpBackend(t, echo("c"))
	gone, kept := pool("gone", model.TCP, a), pool("kept", model.TCP, b)
	gone.Orphans = model.OrphansReset
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": gone, "10.96.0.2:80": kept})
	var conns []*client
	var pids []int
	var p *Plane
	for i := range 3 {
		p = ofBuild(t, dir, fmt.Sprint("build ", i))
		apply(t, p, table)
		pids = append(pids, relayPid(t, p))
		for _, where := range []string{"10.96.0.1:80", "10.96.0.2:80"} {
			conns = append(conns, mustDial(t, where))
			if _, err := conns[len(conns)-1].say(); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := pool("gone", model.TCP, c)
	other.Orphans = model.OrphansReset
	apply(t, p, with(table, other))
	for i, conn := range conns {
		if i%2 == 0 {
			conn.mustEnd(t)
		} else {
			conn.mustSay(t, "b")
		}
	}
	if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Error(err)
	}
	for i, pid := range pids {
		conns[2*i+1].mustEnd(t)
		eventually(t, fmt.Sprintf("relay %d has ended", i), hasEnded(pid))
	}
	if diff := cmp.Diff(before, machine(t, dir)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// TestSuccessorDies has one end the handover at every step.
func TestSuccessorDies(t *testing.T) {
	dns, _ := udpBackend(t, "d")
	p := newPlane(t, t.TempDir())
	table := tableOf(map[string]*model.Pool{"10.96.0.1:80": pool("web", model.TCP, tcpBackend(t, echo("a"))), "10.96.0.1:53": pool("dns", model.UDP, dns)})
	apply(t, p, table)
	u := dialUDP(t, "10.96.0.1:53")
	was := exchange(t, u)
	for steps := range 3 {
		l, _, err := connect(t.Context(), p.socket)
		if err != nil {
			t.Fatal(err)
		}
		offer, err := l.ask(t.Context(), request{Op: opHandover})
		if steps > 0 {
			err = errors.Join(err, l.encoder.Encode(request{Op: opGoOn}))
		}
		if steps > 1 {
			files, receiveErr := receiveFiles(l.conn, len(offer.Given))
			err = errors.Join(err, receiveErr)
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
		}
		if err := errors.Join(err, l.conn.Close()); err != nil {
			t.Fatal(err)
		}
		mustDial(t, "10.96.0.1:80").mustSay(t, "a")
		if is := exchange(t, u); is != was {
			t.Errorf("the UDP flow is %q now, was %q", is, was)
		}
		apply(t, p, table)
	}
	compare(t, p, table)
}
