package steering

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// open opens an interface for a kind, as a process of its own does.
func open(t *testing.T, device *net.Interface, kind Kind) *Program {
	t.Helper()
	p, err := NewInterfaces().Open(device, kind)
	must(t, err)
	return p
}

// tcpFlow is a connection from the client that frameTo has.
func tcpFlow(port uint16) Flow {
	return Flow{Client: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), port), Port: 80, Proto: unix.IPPROTO_TCP}
}

func (p *Program) hasNoted(a netip.Addr, f Flow) bool {
	var seen uint64
	return p.site.loaded != nil && p.site.loaded.Maps[steeringMapBegun].Lookup(keyOf(f, a), &seen) == nil
}

// TestStays: rings stay when the process ends, the next one goes on with them, and the
// program goes with the last, with what it noted.
func TestStays(t *testing.T) {
	for kind := range kinds {
		device := inNamespace(t)
		a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
		ring := Ring{Nodes: []net.HardwareAddr{{2, 0, 0, 0, 0, 7}, {2, 0, 0, 0, 0, 9}}, After: 1}
		first := open(t, device, kind)
		expectLeftovers(t)
		must(t, first.Watch(a, time.Minute))
		flow := tcpFlow(4000)
		must(t, first.Note(a, map[Flow]bool{flow: true}))
		must(t, first.Lead(a, ring, time.Minute))
		must(t, first.Watch(b, time.Minute))
		first.Close()
		expectLeftovers(t, "br0")
		second := open(t, device, kind)
		if got := second.Rings(); len(got) != 2 || !got[a].Equal(ring) || !got[b].Equal(Ring{}) {
			t.Errorf("rings %v, want %v and an empty one", got, ring)
		}
		if !second.hasNoted(a, flow) {
			t.Error("a connection that began here is forgotten")
		}
		none := map[netip.Addr]map[Flow]bool{a: nil}
		must(t, second.Forget(none))
		if !second.hasNoted(a, flow) {
			t.Error("one that has just begun is forgotten")
		}
		must(t, second.site.loaded.Maps[steeringMapBegun].Put(keyOf(flow, a), uint64(1))) // long ago
		must(t, second.Forget(map[netip.Addr]map[Flow]bool{b: nil}))
		must(t, second.Forget(map[netip.Addr]map[Flow]bool{a: {flow: true}}))
		if !second.hasNoted(a, flow) {
			t.Error("one that is there is forgotten")
		}
		must(t, second.Forget(none))
		if second.hasNoted(a, flow) {
			t.Error("one that is over isn't forgotten")
		}
		must(t, second.Note(a, map[Flow]bool{flow: true}))
		for _, address := range []netip.Addr{a, b} {
			expectLeftovers(t, "br0")
			if _, err := second.End(address); err != nil {
				t.Error(err)
			}
		}
		expectLeftovers(t)
		must(t, second.Watch(a, time.Minute))
		if second.hasNoted(a, flow) {
			t.Error("a connection that began here before counts for the next move: the client's next one from the same port may be another node's")
		}
		second.Close()
		if swept, err := Sweep(func(index int) bool { return index == device.Index }); err != nil || len(swept) > 0 {
			t.Errorf("swept %q, %v, of an interface that is to be left alone", swept, err)
		}
		if swept, err := Sweep(func(int) bool { return false }); err != nil || !slices.Equal(swept, []string{"br0"}) {
			t.Errorf("swept %q, %v", swept, err)
		}
		expectLeftovers(t)
	}
}

// TestFilterOfKilledProcess: the program of an earlier process goes on where it is a filter of
// clsact, since the kernel had no tcx; those of an earlier version go.
func TestFilterOfKilledProcess(t *testing.T) {
	device := inNamespace(t)
	spec, err := loadSteering()
	must(t, err)
	killed, err := ebpf.NewCollection(spec)
	must(t, err)
	n, err := netlink.NewHandle()
	must(t, err)
	defer n.Close()
	a, ring := netip.MustParseAddr("2001:db8::1"), Ring{Nodes: []net.HardwareAddr{{2, 0, 0, 0, 0, 7}}}
	must(t, placeOf(n, device.Index).Attach(filterName, killed.Programs[steeringProgSteering].FD()))
	for _, at := range earlier {
		place := at(n, device.Index)
		must(t, place.Attach(place.Prefix, killed.Programs[steeringProgSteering].FD()))
	}
	killed.Close()
	first := open(t, device, Handoff)
	must(t, first.Lead(a, ring, time.Minute))
	first.Close()
	expectLeftovers(t, "br0", "br0", "br0")
	if _, err := Sweep(func(index int) bool { return index == device.Index }); err != nil {
		t.Error(err)
	}
	expectLeftovers(t, "br0")
	second := open(t, device, Handoff)
	if got, _ := second.Ring(a); !got.Equal(ring) {
		t.Errorf("led to %v, want %v", got, ring)
	}
	must(t, second.Detach())
	expectLeftovers(t)
}

// TestNextFormerOwner: an address comes back from a second node while the first one's connections
// go on. UDP flows that show up then are that node's.
func TestNextFormerOwner(t *testing.T) {
	p := open(t, inNamespace(t), Handoff)
	for _, a := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")} {
		var r steeringRing
		must(t, p.Lead(a, Ring{Nodes: []net.HardwareAddr{{2, 0, 0, 0, 0, 7}}}, time.Minute))
		must(t, p.site.loaded.Maps[steeringMapRings].Lookup(ringKey(p.kind, a), &r))
		r.NewUntil = 1 // long ago
		must(t, p.site.loaded.Maps[steeringMapRings].Put(ringKey(p.kind, a), r))
		must(t, p.Lead(a, Ring{Nodes: []net.HardwareAddr{{2, 0, 0, 0, 0, 9}}}, time.Minute))
		must(t, p.site.loaded.Maps[steeringMapRings].Lookup(ringKey(p.kind, a), &r))
		if r.NewUntil == 1 {
			t.Errorf("%s: UDP flows of the second node are taken for this one's", a)
		}
	}
	must(t, p.Detach())
}

// TestSweepOfBothKinds: interfaces are swept when those of both kinds are open. On one that is open,
// what an earlier process led for a kind that isn't there any more is led no longer.
func TestSweepOfBothKinds(t *testing.T) {
	device := inNamespace(t)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br1"}}))
	second, err := net.InterfaceByName("br1")
	must(t, err)
	a := netip.MustParseAddr("192.0.2.1")
	for _, d := range []*net.Interface{device, second} {
		before := NewInterfaces()
		for kind := range kinds {
			p, err := before.Open(d, kind)
			must(t, err)
			must(t, p.Watch(a, time.Minute))
			p.Close()
		}
	}
	now := NewInterfaces()
	p, err := now.Open(device, Handoff)
	must(t, err)
	must(t, now.Sweep(Handoff))
	expectLeftovers(t, "br0", "br1")
	must(t, now.Sweep(Routers))
	expectLeftovers(t, "br0")
	if got := len(p.site.rings[Handoff]) + 10*len(p.site.rings[Routers]); got != 1 {
		t.Errorf("rings %v, want that of the kind that is open", p.site.rings)
	}
	must(t, p.Detach())
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
	program := open(t, at[0], Routers)
	must(t, program.Watch(netip.MustParseAddr("192.0.2.1"), time.Minute))
	program.Close()
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
	must(t, open(t, at[0], Routers).Detach())
	if answered(at[0].HardwareAddr) {
		t.Error("it answers although nothing is led anywhere")
	}
}
