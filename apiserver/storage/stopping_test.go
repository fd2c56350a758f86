package storage

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairway-net/fairway/apiserver/pki"
)

// viaRelay has the other members reach a member by a relay. When mute is set, the
// relay takes all and passes nothing on, as a network that fails does.
func viaRelay(t *testing.T, m *Member, mute *atomic.Bool) {
	t.Helper()
	listen, err := net.Listen("tcp", netip.AddrPortFrom(m.Listen.Addr(), 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listen.Close() })
	m.Advertise = netip.MustParseAddrPort(listen.Addr().String())
	pass := func(to, from net.Conn) {
		defer to.Close() //nolint:errcheck // of a test
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if mute.Load() {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			from, err := listen.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", m.Listen.String())
			if err != nil {
				_ = from.Close()
				continue
			}
			go pass(to, from)
			go pass(from, to)
		}
	}()
}

// TestCloseWithSilentPeer: a member that leads really ends, although the other one,
// which it hands over to, doesn't answer any more.
func TestCloseWithSilentPeer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	authorities, err := pki.OpenAll(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	network, mute := byte(rand.IntN(256)), &atomic.Bool{}
	first, m := peer(t, authorities, network, 1)
	viaRelay(t, m, mute)
	one := openMember(ctx, t, first)
	second, m := peer(t, authorities, network, 2)
	viaRelay(t, m, mute)
	for m.Join == "" { // the first has to know itself for healthy, which takes five seconds
		if m.Join, err = one.AddLearner(ctx, m.Name, m.URL()); err != nil {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				t.Fatal("the second member can't be announced:", err)
			}
		}
	}
	openMember(ctx, t, second)
	if one.etcd.Leader() != one.etcd.MemberID() {
		t.Fatal("the first member doesn't lead")
	}
	mute.Store(true)
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-one.etcd.StopNotify():
	default:
		t.Error("the member was closed and still runs: it waits for the other one to lead")
	}
}
