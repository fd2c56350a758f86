package nftables

import (
	"context"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// faults are what the kernel may answer for reasons of its own.
var faults = []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}

// steps are what a plane does to the kernel in its life.
var steps = []struct {
	name string
	do   func(*Plane, [2]*model.Table) error
}{
	{"first Apply", func(p *Plane, of [2]*model.Table) error { return applied(p, of[0], kernel.VerifyNothing) }},
	{"change", func(p *Plane, of [2]*model.Table) error { return applied(p, of[1], kernel.VerifyNothing) }},
	{"comparison", func(p *Plane, of [2]*model.Table) error { return applied(p, of[0], kernel.VerifyAll) }},
	{"Remove", func(p *Plane, _ [2]*model.Table) error { return p.Remove(context.Background(), kernel.EndConnections) }},
}

func applied(p *Plane, want *model.Table, verify kernel.Verification) error {
	_, err := p.Apply(context.Background(), want, verify)
	return err
}

// walk lives a plane's life with its n-th call of the kernel failing. It tells
// whether there was such a call, and what failed. After that the plane is as if
// killed, since nobody closes anything properly, or goes on.
func walk(t *testing.T, n int, fault error, of [2]*model.Table) (p *Plane, failedIn string) {
	t.Helper()
	p = newPlane(t, kernel.Options{})
	calls := 0
	p.socket.fault = func() error {
		if calls++; calls == n {
			return fault
		}
		return nil
	}
	for _, s := range steps {
		switch err := s.do(p, of); {
		case err != nil && calls < n:
			t.Fatalf("%s: %v, though nothing has failed", s.name, err)
		case err == nil && calls >= n && failedIn == "":
			t.Fatalf("%s: %v was not told", s.name, fault)
		case err != nil:
			p.socket.fault = nil
			return p, s.name
		}
	}
	return p, ""
}

// converges checks that a plane brings the kernel to a table, whatever it holds,
// and that nothing stays when it is removed.
func converges(t *testing.T, p *Plane, of [2]*model.Table) {
	t.Helper()
	for _, table := range of {
		apply(t, p, table, false)
		checkObjects(t, p, table)
	}
	if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
		t.Fatal(err)
	}
	if listed := nft(t, "list", "tables"); listed != "" {
		t.Errorf("after removal there is\n%s", listed)
	}
}

// TestEveryCallFails: each call of the kernel fails in turn, with each error, and
// with a process that ends there. Then the same plane, or the next process, brings
// the kernel to the table.
func TestEveryCallFails(t *testing.T) {
	inNamespace(t)
	of := [2]*model.Table{everything(), withBackendOf(everything())}
	reached := map[string]int{}
	for n := 1; ; n++ {
		fault := faults[n%len(faults)]
		p, failedIn := walk(t, n, fault, of)
		if failedIn == "" {
			break
		}
		reached[failedIn]++
		if n%2 == 0 {
			p = newPlane(t, kernel.Options{}) // the first one was killed
		}
		converges(t, p, of)
	}
	for _, s := range steps {
		if reached[s.name] == 0 {
			t.Errorf("nothing failed in %s: %v", s.name, reached)
		}
	}
	t.Logf("calls that failed: %v", reached)
}

// TestOneCallInTenFails: with waitTimeout everything gets there.
func TestOneCallInTenFails(t *testing.T) {
	inNamespace(t)
	random := rand.New(rand.NewPCG(5, 6))
	of := [2]*model.Table{everything(), withBackendOf(everything())}
	p := newPlane(t, kernel.Options{})
	failing := func() error {
		if random.IntN(10) == 0 {
			return faults[random.IntN(len(faults))]
		}
		return nil
	}
	failed := 0
	for round := range 20 {
		p.socket.fault = failing
		before := failed
		for applied(p, of[round%2], kernel.VerifyIf(round%3 == 0)) != nil { // a comparison takes forty calls
			if failed++; failed-before > 5000 {
				t.Fatal("the table is never reached")
			}
		}
		p.socket.fault = nil
		checkObjects(t, p, of[round%2])
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	converges(t, p, of)
}

// TestWatchOutlivesLostMessages: where the kernel has no room for what it tells, the
// table is looked at, and the next change is noticed too.
func TestWatchOutlivesLostMessages(t *testing.T) {
	inNamespace(t)
	drifted := make(chan struct{}, 100)
	p := newPlane(t, kernel.Options{Drift: func() { drifted <- struct{}{} }})
	apply(t, p, everything(), false)
	if err := unix.SetsockoptInt(p.watch.socket.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1); err != nil {
		t.Fatal(err)
	}
	lost := false
	for range 200 {
		nft(t, "add", "element", "inet", "fairway", "exempt4", "{ 10.96.0.200 }")
		nft(t, "delete", "element", "inet", "fairway", "exempt4", "{ 10.96.0.200 }")
		if lost = len(drifted) > 0; lost {
			break
		}
	}
	if !lost {
		t.Fatal("nothing told that the table has changed")
	}
	for len(drifted) > 0 {
		<-drifted
	}
	nft(t, "add", "element", "inet", "fairway", "exempt4", "{ 10.96.0.201 }")
	<-drifted
}

// withBackendOf is the table with another backend in its first pool.
func withBackendOf(table *model.Table) *model.Table {
	return editPool(table, model.PoolID{Name: "default/web:http", Proto: model.TCP}, func(p *model.Pool) {
		p.Backends = append(p.Backends, backends("10.244.3.9:8080")...)
	})
}
