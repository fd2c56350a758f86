package handover

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// open makes listeners, and an Offer of them.
func open(t *testing.T, address string, n int) (map[string]*net.TCPListener, *Offer) {
	t.Helper()
	listeners := map[string]*net.TCPListener{}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		listeners[fmt.Sprint("socket ", i)] = l.(*net.TCPListener)
	}
	o, err := Listen(address, nil, func() map[string]*net.TCPListener { return listeners }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return listeners, o
}

// TestHandover: many listeners are handed over, a connection that waits at one of
// them goes with it, and so does the offer, for the next time.
func TestHandover(t *testing.T) {
	address := filepath.Join(t.TempDir(), "socket")
	first, offer := open(t, address, 2*maxFiles+1)
	for round := range 3 {
		waiting, err := net.Dial("tcp", first["socket 7"].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		claim, err := Connect(t.Context(), address)
		if err != nil || claim == nil {
			t.Fatal(claim, err)
		}
		second, err := claim.Take()
		if err != nil || len(second) != len(first) || claim.Own == nil {
			t.Fatalf("got %d listeners of %d and %v, %v", len(second), len(first), claim.Own, err)
		}
		next, err := Listen(address, claim.Own, func() map[string]*net.TCPListener { return second }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		if err := claim.Serving(); err != nil {
			t.Fatal(err)
		}
		<-offer.Taken()
		for name, l := range first {
			if second[name].Addr().String() != l.Addr().String() {
				t.Errorf("%s is %s, was %s", name, second[name].Addr(), l.Addr())
			}
			_ = l.Close() // as the one that is replaced does
		}
		c, err := second["socket 7"].Accept()
		if err != nil {
			t.Fatal(round, err)
		}
		_, _ = c.Close(), waiting.Close()
		first, offer = second, next
	}
	for _, l := range first {
		_ = l.Close() // of the test
	}
}

// TestNobody: where nobody offers, there is no claim: not even if somebody did.
func TestNobody(t *testing.T) {
	address := filepath.Join(t.TempDir(), "socket")
	for range 2 {
		if claim, err := Connect(t.Context(), address); claim != nil || err != nil {
			t.Fatal(claim, err)
		}
		_, o := open(t, address, 1) // also over the file that is left
		o.Close()
	}
}

// TestSuccessorFails: one that doesn't get to serve leaves all as it was, and
// the next one has its turn.
func TestSuccessorFails(t *testing.T) {
	address := fmt.Sprintf("@%s-%d", t.Name(), time.Now().UnixNano())
	first, offer := open(t, address, 1)
	for _, taking := range []bool{false, true} {
		claim, err := Connect(t.Context(), address)
		if err != nil || claim == nil {
			t.Fatal(claim, err)
		}
		if taking {
			listeners, err := claim.Take()
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range listeners {
				_ = l.Close() // as it does when it dies
			}
			_ = claim.Own.Close()
		}
		left := offer.Left()
		if left == nil {
			t.Fatal("the successor isn't known")
		}
		next := make(chan *Claim)
		go func() {
			c, err := Connect(t.Context(), address)
			if err != nil {
				t.Error(err)
			}
			next <- c
		}()
		claim.Close()
		<-left
		(<-next).Close()
	}
	select {
	case <-offer.Taken():
		t.Error("it counts as taken over")
	default:
	}
	c, err := net.Dial("tcp", first["socket 0"].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// TestConnectEnds: who waits for its turn can be stopped.
func TestConnectEnds(t *testing.T) {
	address := filepath.Join(t.TempDir(), "socket")
	open(t, address, 1)
	claim, err := Connect(t.Context(), address)
	if err != nil || claim == nil {
		t.Fatal(claim, err)
	}
	defer claim.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if second, err := Connect(ctx, address); err == nil {
		t.Errorf("a second claim: %v", second)
	}
}
