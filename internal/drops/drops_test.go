package drops

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// TestRefusedByNobody: a connection and a datagram to ports where nobody listens are
// told of with the kernel's reason, in the own network namespace alone.
func TestRefusedByNobody(t *testing.T) {
	here, elsewhere := namespace(t), namespace(t)
	var w *Watch
	if err := here.Do(func() (err error) { w, err = Open(Query{}); return err }); err != nil {
		if kernel.IsMissing(err) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // of a test
	knock(t, elsewhere, "127.0.0.1:77")
	knock(t, here, "127.0.0.1:78")
	knock(t, here, "[::1]:79")
	for _, want := range []struct {
		to    string
		proto model.Protocol
	}{{"127.0.0.1:78", model.TCP}, {"127.0.0.1:78", model.UDP}, {"[::1]:79", model.TCP}, {"[::1]:79", model.UDP}} {
		got, err := w.Next(time.Now().Add(10 * time.Second))
		if err != nil {
			t.Fatalf("%s: %v", want.to, err)
		}
		if got.Reason != "NO_SOCKET" || got.Destination != netip.MustParseAddrPort(want.to) || got.Proto != want.proto || !got.Source.Addr().IsLoopback() || got.Source.Port() == 0 || got.Frontend != got.Destination {
			t.Errorf("told of %+v, want %+v", got, want)
		}
	}
	if got, err := w.Next(time.Now().Add(100 * time.Millisecond)); err == nil {
		t.Errorf("told of %+v, want no more", got)
	}
}

// namespace has a loopback interface.
func namespace(t *testing.T) *netns.NS {
	t.Helper()
	ns := netnstest.New(t)
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// knock connects, and sends a datagram.
func knock(t *testing.T, ns *netns.NS, to string) {
	t.Helper()
	if err := ns.Do(func() error {
		if c, err := net.DialTimeout("tcp", to, time.Second); err == nil {
			return errors.Join(errors.New("somebody listens"), c.Close())
		}
		c, err := net.Dial("udp", to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	}); err != nil {
		t.Fatal(err)
	}
}
