package tcfilter

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/bpffs"
)

// asPod leaves the thread the capabilities that deploy/ gives an agent in a pod.
func asPod(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	for _, c := range []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_BPF, unix.CAP_PERFMON} {
		sets[c/32].Effective |= 1 << (c % 32)
		sets[c/32].Permitted |= 1 << (c % 32)
	}
	check(t, unix.Capset(&header, &sets[0]))
}

// counting is a program that lets every packet pass, and a map.
func counting() *ebpf.CollectionSpec {
	return &ebpf.CollectionSpec{
		Maps: map[string]*ebpf.MapSpec{"counts": {Name: "counts", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		Programs: map[string]*ebpf.ProgramSpec{"counting": {Name: "counting", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
			asm.LoadMapPtr(asm.R1, 0).WithReference("counts"), asm.Mov.Imm(asm.R0, -1), asm.Return(),
		}}},
	}
}

// TestFirstInPod: with the capabilities of a pod, and somebody else's program beside, the
// next process finds the program and its maps, replaces it, and removes it whole.
func TestFirstInPod(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // the thread ends with the test, and its namespace with it
	check(t, bpffs.Mount())
	check(t, unix.Unshare(unix.CLONE_NEWNET))
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	check(t, err)
	defer h.Close()
	check(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}))
	l, err := h.LinkByName("br0")
	check(t, err)
	theirs := passing(t)
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: l.Attrs().Index, Program: theirs, Attach: ebpf.AttachTCXIngress})
	tcx := err == nil // else the kernel has only filters
	asPod(t)
	at := FirstAt(func(h *netlink.Handle, index int) First {
		return First{Place{Netlink: h, Index: index, Side: Ingress, Priority: 7, Prefix: "ours"}, "counting"}
	})
	f := at(h, l.Attrs().Index)
	if found, err := f.Open(); found != nil || err != nil {
		t.Fatalf("found %v, %v where nothing is", found, err)
	}
	if _, err := at.Sweep("nothing", func(int) bool { return false }); err != nil {
		t.Errorf("sweep where only others are: %v", err)
	}
	first, err := f.LoadSuccessor(counting(), nil)
	check(t, err)
	check(t, first.Maps["counts"].Put(uint32(0), uint64(7)))
	check(t, f.Put(first))
	first.Close()

	earlier, err := f.Open()
	check(t, err)
	if earlier == nil {
		t.Fatal("the next process doesn't find the program")
	}
	second, err := f.LoadSuccessor(counting(), earlier)
	check(t, err)
	check(t, earlier.Close())
	var count uint64
	check(t, second.Maps["counts"].Lookup(uint32(0), &count))
	if count != 7 {
		t.Errorf("the next process finds %d in the map, want 7", count)
	}
	check(t, f.Put(second))
	second.Close()
	if there := at.IsThere(l.Attrs().Index); !there {
		t.Error("it isn't there after the second process")
	}
	swept, err := at.Sweep("all", func(int) bool { return false })
	check(t, err)
	if len(swept) != 1 || swept[0] != "br0" {
		t.Errorf("swept %q", swept)
	}
	p, err := f.pins()
	check(t, err)
	if _, err := os.Stat(filepath.Dir(string(p))); !os.IsNotExist(err) {
		t.Errorf("pins are left: %v", err)
	}
	if tcx {
		found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
		check(t, err)
		if len(found.Programs) != 1 {
			t.Errorf("%d programs are left, want somebody else's", len(found.Programs))
		}
	}

	// What goes with its interface leaves no pins.
	third, err := f.LoadSuccessor(counting(), nil)
	check(t, err)
	check(t, f.Put(third))
	third.Close()
	check(t, h.LinkDel(l))
	if tcx {
		_, err := at.Sweep("all", func(int) bool { return false })
		check(t, err)
		if _, err := os.Stat(string(p)); !os.IsNotExist(err) {
			t.Errorf("pins of an interface that is gone are left: %v", err)
		}
	}
}
