package handoff

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/announce/lead"
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

// TestStays: what is led elsewhere is so when the process ends, the next one goes on with it,
// and a sweep ends it.
func TestStays(t *testing.T) {
	device := inNamespace(t)
	a, mac := netip.MustParseAddr("192.0.2.1"), net.HardwareAddr{2, 0, 0, 0, 0, 7}
	first, err := Open(device)
	must(t, err)
	expectLeftovers(t)
	begun := []lead.Flow{{Client: netip.MustParseAddrPort("198.51.100.1:4000"), Port: 80, Proto: unix.IPPROTO_TCP}}
	must(t, first.Lead(a, mac, begun, time.Minute))
	must(t, first.Close())
	expectLeftovers(t, "br0")
	if !IsThere(device) {
		t.Error("the program isn't found")
	}
	second, err := Open(device)
	must(t, err)
	if got := second.Leads()[a]; !slices.Equal(got, mac) {
		t.Errorf("led to %s, want %s", got, mac)
	}
	var seen uint64
	if err := second.Maps[handoffMapBegun].Lookup(lead.KeyOf(begun[0], a), &seen); err != nil {
		t.Errorf("a connection that began here is forgotten: %v", err)
	}
	if _, err := second.End(a); err != nil {
		t.Error(err)
	}
	expectLeftovers(t)
	must(t, second.Lead(a, mac, nil, time.Minute))
	if err := second.Maps[handoffMapBegun].Lookup(lead.KeyOf(begun[0], a), &seen); err == nil {
		t.Error("a connection that began here before counts for the next move: the client's next one from the same port may be another node's")
	}
	must(t, second.Close())
	if swept, err := Sweep(func(index int) bool { return index == device.Index }); err != nil || len(swept) > 0 {
		t.Errorf("swept %q, %v, of an interface that is to be left alone", swept, err)
	}
	if swept, err := Sweep(func(int) bool { return false }); err != nil || !slices.Equal(swept, []string{"br0"}) {
		t.Errorf("swept %q, %v", swept, err)
	}
	expectLeftovers(t)
}

// TestFilterOfKilledProcess: the same by a filter of clsact, where the kernel has no tcx.
func TestFilterOfKilledProcess(t *testing.T) {
	device := inNamespace(t)
	spec, err := loadHandoff()
	must(t, err)
	killed, err := ebpf.NewCollection(spec)
	must(t, err)
	n, err := netlink.NewHandle()
	must(t, err)
	defer n.Close()
	must(t, siteOf(n, device.Index).Attach(filterName, killed.Programs[handoffProgHandoff].FD()))
	killed.Close()
	first, err := Open(device)
	must(t, err)
	a, mac := netip.MustParseAddr("2001:db8::1"), net.HardwareAddr{2, 0, 0, 0, 0, 7}
	must(t, first.Lead(a, mac, nil, time.Minute))
	must(t, first.Close())
	expectLeftovers(t, "br0")
	second, err := Open(device)
	must(t, err)
	if got := second.Leads()[a]; !slices.Equal(got, mac) {
		t.Errorf("led to %s, want %s", got, mac)
	}
	must(t, second.Close())
	if swept, err := Sweep(func(int) bool { return false }); err != nil || !slices.Equal(swept, []string{"br0"}) {
		t.Errorf("swept %q, %v", swept, err)
	}
	expectLeftovers(t)
}

// tcpTo is a frame of a client's connection to port 80 of an address.
func tcpTo(a netip.Addr, client uint16, flags byte) []byte {
	frame := append(make([]byte, 12), 0x08, 0)
	frame = append(frame, 0x45, 0, 0, 40, 0, 1, 0, 0, 64, unix.IPPROTO_TCP, 0, 0, 198, 51, 100, 1)
	frame = append(frame, a.AsSlice()...)
	return append(frame, byte(client>>8), byte(client), 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0)
}

// TestManyBegin: however many connections begin after a move, none that is still there is led to
// the former owner. When there is no room for more, nothing is led there.
func TestManyBegin(t *testing.T) {
	device := inNamespace(t)
	h, err := Open(device)
	must(t, err)
	defer h.Close()
	a, mac := netip.MustParseAddr("192.0.2.1"), net.HardwareAddr{2, 0, 0, 0, 0, 7}
	must(t, h.Lead(a, mac, nil, time.Minute))
	const (
		syn, ack     = 2, 16
		pass, led    = ^uint32(0), 7 // TC_ACT_UNSPEC, TC_ACT_REDIRECT
		live, former = 4000, 4001
	)
	expect := func(what string, port uint16, flags byte, want uint32) {
		t.Helper()
		got, _, err := h.Loaded().Test(tcpTo(a, port, flags))
		must(t, err)
		if got != want {
			t.Errorf("%s: verdict %d, want %d", what, int32(got), int32(want))
		}
	}
	expect("a connection begins", live, syn, pass)
	expect("it goes on", live, ack, pass)
	expect("one of before", former, ack, led)
	var last error
	begun := h.Maps[handoffMapBegun]
	client := netip.MustParseAddr("10.0.0.1")
	for n := uint32(0); n < begun.MaxEntries() && last == nil; n++ {
		last = begun.Put(lead.KeyOf(lead.Flow{Client: netip.AddrPortFrom(client, 4000), Port: 80, Proto: unix.IPPROTO_TCP}, a), uint64(1))
		client = client.Next()
	}
	if last == nil {
		t.Fatal("the table takes more than it has room for")
	}
	expect("another one begins", 4002, syn, pass)
	expect("the first one goes on", live, ack, pass)
	expect("one of before, whose packets aren't told from others' any more", former, ack, pass)
	must(t, h.Forget(a, map[lead.Flow]bool{{Client: netip.MustParseAddrPort("198.51.100.1:4000"), Port: 80, Proto: unix.IPPROTO_TCP}: true}, 0))
	expect("it still goes on", live, ack, pass)
	if h.IsCrowded() {
		t.Error("connections that are over count")
	}
}
