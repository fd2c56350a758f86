package tcfilter

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passing is a program that lets every packet pass.
func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	check(t, rlimit.RemoveMemlock())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	check(t, err)
	t.Cleanup(func() { check(t, p.Close()) })
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLife attaches programs at both sides of an interface, replaces one, and removes
// them beside a filter of somebody else's, which stays with the queueing discipline.
func TestLife(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, and its namespace with it
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	check(t, err)
	defer h.Close()
	check(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l, err := h.LinkByName("br0")
	check(t, err)
	at := func(side uint32, priority uint16, prefix string) Place {
		return Place{Netlink: h, Index: l.Attrs().Index, Side: side, Priority: priority, Prefix: prefix}
	}
	in, out, others := at(Ingress, 7, "ours-"), at(Egress, 7, "ours-"), at(Ingress, 9, "theirs")
	program := passing(t)
	if f, err := in.Find(); f != nil || err != nil {
		t.Fatalf("found %v, %v where nothing is", f, err)
	}
	// One named ingress makes room if nobody uses it; it would run both sides' filters at one.
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0)}}
	check(t, h.QdiscAdd(ingress))
	check(t, h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: Ingress, Handle: 1, Priority: 3, Protocol: unix.ETH_P_ALL},
		Name:        "others", DirectAction: true, Fd: program.FD(),
	}))
	if err := out.Attach("ours-0", program.FD()); !errors.Is(err, errIngress) {
		t.Errorf("attached beside the queueing discipline ingress: %v", err)
	}
	check(t, h.QdiscDel(ingress))
	check(t, h.QdiscAdd(ingress))
	check(t, in.Attach("ours-1", program.FD()))
	check(t, out.Attach("ours-1", program.FD()))
	check(t, others.Attach("theirs", program.FD()))
	check(t, in.Attach("ours-2", program.FD()))
	f, err := in.Find()
	check(t, err)
	if f == nil || f.Name != "ours-2" {
		t.Fatalf("found %v", f)
	}
	if list, err := in.list(Ingress); err != nil || len(list) != 2 {
		t.Errorf("%d filters, %v; want ours and theirs", len(list), err)
	}
	for _, p := range []Place{in, out} {
		if found, err := p.Detach(); !found || err != nil {
			t.Errorf("detached: %t, %v", found, err)
		}
		if found, err := p.Detach(); found || err != nil {
			t.Errorf("detached again: %t, %v", found, err)
		}
	}
	if f, err := others.Find(); f == nil || err != nil {
		t.Fatalf("somebody else's filter: %v, %v", f, err)
	}
	if found, err := others.Detach(); !found || err != nil {
		t.Errorf("the last one: %t, %v", found, err)
	}
	list, err := h.QdiscList(l)
	check(t, err)
	for _, q := range list {
		if q.Type() == "clsact" {
			t.Error("the queueing discipline is left")
		}
	}
	check(t, h.LinkDel(l))
	if err := in.Attach("ours-3", program.FD()); !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("attached to an interface that has gone: %v", err)
	}
	if found, err := in.Detach(); found || err != nil {
		t.Errorf("detached from an interface that has gone: %t, %v", found, err)
	}
}
