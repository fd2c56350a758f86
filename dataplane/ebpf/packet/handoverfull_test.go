//go:build smallconntrack

package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/migrate"
	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// most is up to how many entries TestHandoverToFullTable makes.
const most = 300_000

// TestHandoverToFullTable hands connections over while conntrack's table is full, of entries
// that the kernel may not drop: they go on in the programs, and nothing is frozen. As soon
// as there is room for some, the next attempt hands over as many, and the one after it the rest.
func TestHandoverToFullTable(t *testing.T) {
	limit := conntrackLimit(t)
	if limit == 0 || limit > most {
		t.Fatalf("conntrack's table has room for %d entries here", limit)
	}
	ns := netnstest.New(t)
	fillers := fill(t, ns, limit)

	b := newBench(t, true)
	conns := &connTable{m: b.conns.m}
	const open = 5
	var clientsOf []netip.AddrPort
	for n := range open {
		client := netip.AddrPortFrom(clients[0].Addr(), 43000+uint16(n))
		b.converse(t, client.Port(), "SsA")
		clientsOf = append(clientsOf, client)
	}
	for _, c := range []struct{ room, stay int }{{0, open}, {2, open - 2}, {open, 0}} {
		must(t, ns.Do(func() error {
			for _, f := range fillers[:c.room] {
				if err := f.Delete(); err != nil {
					return err
				}
			}
			return nil
		}))
		fillers = fillers[c.room:]
		some, err := conns.translations()
		must(t, err)
		var handed error
		must(t, ns.Do(func() error {
			handed = migrate.ToConntrack(context.Background(), &batch{conns: conns, some: some})
			return nil
		}))
		if full := errors.Is(handed, unix.ENOMEM); full != (c.stay > 0) || !full && handed != nil {
			t.Errorf("room for %d: %v", c.room, handed)
		}
		if here := b.served(t, clientsOf); here != c.stay {
			t.Errorf("room for %d: the programs serve %d connections, want %d", c.room, here, c.stay)
		}
	}
	if n := handedOver(t, ns); n != open {
		t.Errorf("conntrack has %d connections, want %d", n, open)
	}
}

// served counts the clients whose established connections the programs translate.
func (b *bench) served(t *testing.T, clientsOf []netip.AddrPort) (n int) {
	t.Helper()
	for _, client := range clientsOf {
		verdict, got := b.run(t, "ingress", packet{proto: unix.IPPROTO_TCP, flags: ack, src: client, dst: served[0]})
		if verdict == goOn && got.dst == backends[0] {
			n++
		}
	}
	return n
}

// conntrackLimit is how many entries conntrack may have; 0 if the kernel doesn't say.
func conntrackLimit(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	must(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	return limit
}

// fill makes entries in a namespace until conntrack has room for no more.
func fill(t *testing.T, ns *netns.NS, limit int) []conntrack.Flow {
	t.Helper()
	const fillers = 4
	nobody := netip.MustParseAddrPort("198.51.100.1:9")
	made := make([][]conntrack.Flow, fillers)
	var group errgroup.Group
	var next atomic.Int64
	for i := range fillers {
		group.Go(func() error {
			return ns.Do(func() error {
				for {
					n := int(next.Add(1))
					if n > limit+2*fillers {
						return fmt.Errorf("the table isn't full with %d entries", limit)
					}
					at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 24), byte(n >> 16)}), uint16(n))
					f := conntrack.Flow{
						Proto: model.UDP, Client: at, Source: at, Frontend: nobody, Backend: nobody,
						Status: conntrack.SeenReply | conntrack.Assured, Expires: 3600,
					}
					if err := f.Insert(); errors.Is(err, unix.ENOMEM) {
						return nil
					} else if err != nil {
						return err
					}
					made[i] = append(made[i], f)
				}
			})
		})
	}
	must(t, group.Wait())
	return made[0]
}

// handedOver counts conntrack's connections to the served frontend.
func handedOver(t *testing.T, ns *netns.NS) (n int) {
	t.Helper()
	must(t, ns.Do(func() error {
		return conntrack.Flows(context.Background(), func(f *conntrack.Flow) {
			if f.Frontend == served[0] && f.Backend == backends[0] {
				n++
			}
		})
	}))
	return n
}
