package ebpf

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/syscallfault"
)

// progQuery is BPF_PROG_QUERY of linux/bpf.h.
const progQuery = 16

// withoutTCX has the kernel be one without tcx (before 6.6), which knows no such place
// of attachment. All other calls of bpf(2) go on.
func withoutTCX(call syscallfault.Call) (errno unix.Errno, settled bool) {
	if call.Number != unix.SYS_BPF {
		return 0, false
	}
	if call.Args[0] != progQuery {
		return 0, true
	}
	// The call is one of this process, so its argument can be read where it is.
	attr := *(*unsafe.Pointer)(unsafe.Pointer(&call.Args[1])) // struct { target, attach_type u32; ... }
	at := *(*uint32)(unsafe.Add(attr, 4))
	if at == uint32(ebpf.AttachTCXIngress) || at == uint32(ebpf.AttachTCXEgress) {
		return unix.EINVAL, true
	}
	return 0, true
}

// inProcessWithoutTCX is inProcessWithFaults on a kernel without tcx, where programs are
// filters of clsact.
func inProcessWithoutTCX(t *testing.T, test func(t *testing.T, calls *syscallfault.Injector, options kernel.Options)) {
	t.Helper()
	inProcessWithFaults(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		calls.Settle(withoutTCX)
		p := newPlane(t, options)
		if _, err := p.Apply(context.Background(), webTable(1, 1), kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "links")); !os.IsNotExist(err) {
			t.Errorf("programs are attached by links: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		test(t, calls, options)
	}, append([]uint32{unix.SYS_BPF}, otherCalls...)...)
}

// TestCallsFailWithoutTCX is TestOtherCallsFail there.
func TestCallsFailWithoutTCX(t *testing.T) { inProcessWithoutTCX(t, otherCallsFail) }

// TestCallsOfALifeFailWithoutTCX is TestOtherCallsOfALifeFail there.
func TestCallsOfALifeFailWithoutTCX(t *testing.T) { inProcessWithoutTCX(t, otherCallsOfALifeFail) }
