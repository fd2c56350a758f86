package ipvs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/internal/nlmsg"
	"github.com/fairway-net/fairway/test/vm"
)

// TestBulkTellsErrorsApart: each error is told of the message that it is about, also
// if all of a call's fail, and the others are carried out.
func TestBulkTellsErrorsApart(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		d := testDummy(t)
		address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}) }
		var messages []*nl.NetlinkRequest
		add := func(n int) { messages = append(messages, d.newAddress(address(n))) }
		there := map[int]bool{}
		for n := range 3 * nlmsg.BulkMessages {
			add(n)
			if n%7 == 3 || n > 2*nlmsg.BulkMessages { // a whole call of errors is in the end
				add(n)
				there[len(messages)-1] = true
			}
		}
		for range 2 * nlmsg.BulkMessages {
			add(0)
			there[len(messages)-1] = true
		}
		failed, err := d.bulk.Do(messages, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			if got := failed[i]; there[i] != errors.Is(got, unix.EEXIST) || !there[i] && got != nil {
				t.Errorf("message %d: %v, while it is there already: %t", i, got, there[i])
			}
		}
		if list, err := d.addresses(); err != nil || len(list) != 3*nlmsg.BulkMessages {
			t.Errorf("%d addresses, %v", len(list), err)
		}
	})
}

// testDummy is the interface, or what stands in for it.
func testDummy(t *testing.T) *dummy {
	t.Helper()
	d, err := openDummy()
	if err != nil {
		t.Fatal(err)
	}
	standIn(t)
	if err := d.ensure(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCallsForAddresses counts system calls for many addresses at once.
func TestCallsForAddresses(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		d := testDummy(t)
		for _, c := range []string{"link set lo up", "link add up0 type bridge", "link set up0 up", "address add 192.168.9.1/24 dev up0", "route add default via 192.168.9.254"} {
			command(t, "", "ip", strings.Fields(c)...)
		}
		const n = 1000
		var list []netip.Addr
		for i := range n {
			list = append(list, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}))
			list = append(list, netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", i+1)))
		}
		if err := d.bind(list); err != nil {
			t.Fatal(err)
		}
		// The answer to each question for a source is a call, and little beside.
		if most := n + n/10; d.bulk.Calls > most {
			t.Errorf("%d system calls for %d messages, more than %d", d.bulk.Calls, 4*n, most)
		}
		t.Logf("%d system calls for %d messages", d.bulk.Calls, 4*n)
		found, err := d.addresses()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			if !found[a] {
				t.Fatalf("%s isn't there", a)
			}
		}
		if err := d.bind(list); err != nil {
			t.Errorf("once more: %v", err)
		}
		one := command(t, "", "ip", "route", "get", "10.96.3.200")
		if want := "src 192.168.9.1 "; !strings.Contains(one, want) {
			t.Errorf("a process of the node reaches for an address as %s", one)
		}
	})
}

// TestCallsOfAStart counts system calls for many virtual servers at once.
func TestCallsOfAStart(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		inNamespace(t, func(t *testing.T) {
			node(t)
			p, err := New(kernel.Options{StateDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			const n = 90 // before that of settings that is exempt
			table := manyServices(n)
			apply(t, p, table, false)
			k := p.balancer.(*lvs.Kernel)
			if most := 4 * n / 20; k.Bulk.Calls > most {
				t.Errorf("%d system calls for %d virtual servers of 3 destinations, more than %d", k.Bulk.Calls, n, most)
			}
			t.Logf("%d system calls for %d virtual servers of 3 destinations", k.Bulk.Calls, n)
		})
	}, "ip_vs", "dummy")
}
