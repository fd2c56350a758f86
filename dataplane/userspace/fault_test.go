package userspace

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// faults are what the kernel may answer for reasons of its own.
var faults = []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// stages are what a plane does in its life.
var stages = []struct {
	name string
	do   func(*testing.T, *Plane, [2]*model.Table) error
}{
	{"first Apply", func(t *testing.T, p *Plane, of [2]*model.Table) error {
		_, err := p.Apply(t.Context(), of[0], kernel.VerifyNothing)
		return err
	}},
	{"change", func(t *testing.T, p *Plane, of [2]*model.Table) error {
		_, err := p.Apply(t.Context(), of[1], kernel.VerifyNothing)
		return err
	}},
	{"comparison", func(t *testing.T, p *Plane, of [2]*model.Table) error {
		_, err := p.Apply(t.Context(), of[0], kernel.VerifyAll)
		return err
	}},
	{"Remove", func(t *testing.T, p *Plane, _ [2]*model.Table) error {
		return p.Remove(t.Context(), kernel.EndConnections)
	}},
}

// twoTables differ in routes of both families and in what is behind one frontend.
func twoTables(t *testing.T) [2]*model.Table {
	t.Helper()
	backend := tcpBackend(t, echo("a"))
	web, other := pool("web", model.TCP, backend), pool("other", model.TCP, first)
	six := pool("six", model.TCP, netip.MustParseAddrPort("[2001:db8:1::1]:80"))
	return [2]*model.Table{
		tableOf(map[string]*model.Pool{"10.96.0.1:80": web, "203.0.113.1:80": other, "[2001:db8::1]:80": six}),
		tableOf(map[string]*model.Pool{"10.96.0.1:80": web, "203.0.113.2:80": other, "[2001:db8::2]:80": six}),
	}
}

// TestEveryStepFails: the agent is killed after each step of Apply and Remove, or the
// step fails. The relay goes on meanwhile. Then the same plane, or the next process,
// reaches a table, and leaves nothing when it is removed.
func TestEveryStepFails(t *testing.T) {
	dir := t.TempDir()
	empty, of, reached := machine(t, dir), twoTables(t), map[string]int{}
	for n := 1; ; n++ {
		p, count, kills, failedIn := newPlane(t, dir), 0, n%2 == 0, ""
		p.steps.Reached = func(string) error {
			switch count++; {
			case count >= n && kills:
				return errKilled
			case count == n:
				return faults[n%len(faults)]
			}
			return nil
		}
		for _, s := range stages {
			err := s.do(t, p, of)
			if err != nil && count < n {
				t.Fatalf("%s: %v, though nothing has failed", s.name, err)
			}
			if err == nil && count >= n {
				t.Errorf("%s: step %d failed, and nobody was told", s.name, n)
			}
			if count >= n {
				failedIn = s.name
				break
			}
		}
		p.steps.Reached = nil
		if failedIn == "" {
			break
		}
		reached[failedIn]++
		if kills {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			p = newPlane(t, dir)
		}
		want := of[n/2%2]
		apply(t, p, want)
		compare(t, p, want)
		mustDial(t, "10.96.0.1:80").mustSay(t, "a")
		removed(t, p, dir, empty, failedIn)
	}
	for _, s := range stages {
		if reached[s.name] == 0 {
			t.Errorf("nothing failed in %s: %v", s.name, reached)
		}
	}
	t.Logf("steps that failed: %v", reached)
}

// TestOneStepInTenFails: with waitTimeout everything gets there.
func TestOneStepInTenFails(t *testing.T) {
	dir := t.TempDir()
	empty, of, random, failed := machine(t, dir), twoTables(t), rand.New(rand.NewPCG(5, 6)), 0
	p := newPlane(t, dir)
	p.steps.Reached = func(string) error {
		if random.IntN(10) > 0 {
			return nil
		}
		failed++
		return faults[failed%len(faults)]
	}
	for n := range 20 {
		for attempts := 0; ; attempts++ {
			_, err := p.Apply(t.Context(), of[n%2], kernel.VerifyIf(n%3 == 0))
			if err == nil {
				break
			}
			if attempts == 500 {
				t.Fatalf("it never gets there: %v", err)
			}
		}
		compare(t, p, of[n%2])
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	p.steps.Reached = nil
	removed(t, p, dir, empty, "steps that failed")
}

func removed(t *testing.T, p *Plane, dir, empty, after string) {
	t.Helper()
	var pid int
	if _, err := os.Stat(p.socket); err == nil {
		pid = relayPid(t, p)
	}
	if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
		t.Fatalf("after a fault in %s: %v", after, err)
	}
	if pid != 0 {
		eventually(t, "the relay has ended", hasEnded(pid))
	}
	if diff := cmp.Diff(empty, machine(t, dir)); diff != "" {
		t.Fatalf("after a fault in %s, and removal (-before +after):\n%s", after, diff)
	}
}

// TestRelayEnds reaches for a relay while it ends: it closes connections, and its
// socket a while later. Then there is none.
func TestRelayEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "userspace-1"+socketSuffix)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	go func() {
		for range 3 {
			if conn, err := listener.Accept(); err == nil {
				discard(conn.Close())
			}
		}
		discard(listener.Close())
	}()
	if _, _, err := connect(t.Context(), path); !notRunning(err) {
		t.Errorf("error %v; want one that says that there is no relay", err)
	}
}
