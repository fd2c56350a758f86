package ring

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/lead"
	"github.com/fairway-net/fairway/announce/link"
	"github.com/fairway-net/fairway/test/wait"
)

// inNamespace gives the test a network namespace with an interface.
func inNamespace(t *testing.T) *net.Interface {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, and its namespace with it
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	device, err := net.InterfaceByName("br0")
	must(t, err)
	return device
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expectLeftovers(t *testing.T, want ...string) {
	t.Helper()
	got, err := Leftovers()
	must(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("programs are left on %q, want %q", got, want)
	}
}

// TestStays: rings stay when the process ends, the next one goes on with them, and the
// program goes with the last.
func TestStays(t *testing.T) {
	device := inNamespace(t)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	ring := Ring{Nodes: []net.HardwareAddr{{2, 0, 0, 0, 0, 7}, {2, 0, 0, 0, 0, 9}}, After: 1}
	first, err := Open(device)
	must(t, err)
	expectLeftovers(t)
	must(t, first.Watch(a, time.Minute))
	flow := lead.Flow{Client: netip.MustParseAddrPort("198.51.100.1:4000"), Port: 80, Proto: unix.IPPROTO_TCP}
	key := lead.KeyOf(flow, a)
	must(t, first.Note(a, []lead.Flow{flow}))
	must(t, first.Lead(a, ring, time.Minute))
	must(t, first.Watch(b, time.Minute))
	must(t, first.Close())
	expectLeftovers(t, "br0")
	if !IsThere(device) {
		t.Error("the program isn't found")
	}
	second, err := Open(device)
	must(t, err)
	if got := second.Rings(); len(got) != 2 || !got[a].Equal(ring) || !got[b].Equal(Ring{}) {
		t.Errorf("rings %v, want %v and an empty one", got, ring)
	}
	var seen uint64
	if err := second.Maps[straysMapBegun].Lookup(key, &seen); err != nil {
		t.Errorf("a connection that began here is forgotten: %v", err)
	}
	must(t, second.Forget(a, nil))
	if err := second.Maps[straysMapBegun].Lookup(key, &seen); err != nil {
		t.Error("one that has just begun is forgotten")
	}
	must(t, second.Maps[straysMapBegun].Put(key, uint64(1))) // long ago
	must(t, second.Forget(b, nil))
	must(t, second.Forget(a, map[lead.Flow]bool{flow: true}))
	if err := second.Maps[straysMapBegun].Lookup(key, &seen); err != nil {
		t.Error("one that is there is forgotten")
	}
	must(t, second.Forget(a, nil))
	if err := second.Maps[straysMapBegun].Lookup(key, &seen); err == nil {
		t.Error("one that is over isn't forgotten")
	}
	for _, address := range []netip.Addr{a, b} {
		expectLeftovers(t, "br0")
		if _, err := second.End(address); err != nil {
			t.Error(err)
		}
	}
	expectLeftovers(t)
	must(t, second.Watch(a, time.Minute))
	must(t, second.Close())
	if swept, err := Sweep(func(int) bool { return false }); err != nil || !slices.Equal(swept, []string{"br0"}) {
		t.Errorf("swept %q, %v", swept, err)
	}
	expectLeftovers(t)
}

// TestAnswersQuestions: the kernel answers other nodes while there is something to lead, also
// when the process is gone.
func TestAnswersQuestions(t *testing.T) {
	inNamespace(t)
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here"}, PeerName: "there"}))
	var at [2]*net.Interface
	for i, name := range []string{"here", "there"} {
		link, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(link))
		at[i], err = net.InterfaceByName(name)
		must(t, err)
	}
	program, err := Open(at[0])
	must(t, err)
	must(t, program.Watch(netip.MustParseAddr("192.0.2.1"), time.Minute))
	must(t, program.Close())
	asker, err := packet.Listen(at[1], packet.Raw, 0x88b6, nil)
	must(t, err)
	defer asker.Close()
	q := link.Questions{Magic: [4]byte{'F', 'W', 'S', 'Q'}, EtherType: 0x88b6}
	q.Begin()
	answered := func(to net.HardwareAddr) bool {
		_, err := asker.WriteTo(q.Frame(to, at[1].HardwareAddr), &packet.Addr{HardwareAddr: to})
		must(t, err)
		must(t, asker.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
		for buffer := make([]byte, 2000); ; {
			n, _, err := asker.ReadFrom(buffer)
			if err != nil {
				return false
			}
			if _, err := q.Answer(buffer[:n]); err == nil {
				return slices.Equal(buffer[:6], at[1].HardwareAddr) && slices.Equal(buffer[6:12], at[0].HardwareAddr)
			}
		}
	}
	wait.Until(t, time.Minute, "an answer", func() bool { return answered(at[0].HardwareAddr) }) // the link comes up
	if answered(net.HardwareAddr{2, 0, 0, 0, 0, 77}) {
		t.Error("it answers for another node")
	}
	next, err := Open(at[0])
	must(t, err)
	must(t, next.Detach())
	if answered(at[0].HardwareAddr) {
		t.Error("it answers although nothing is led anywhere")
	}
}
