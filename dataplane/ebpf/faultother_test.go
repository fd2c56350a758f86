package ebpf

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/testing/failcall"
)

// otherCalls are those beside bpf(2) by which this plane changes and asks the kernel:
// netlink (links, qdiscs, filters, sockets), and the files of pins and of the state.
// For socket(2), see TestSocketsFail.
var otherCalls = []uint32{
	unix.SYS_BIND, unix.SYS_SETSOCKOPT, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG,
	unix.SYS_MOUNT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT,
}

// otherFaults are faults without EAGAIN, which would say to wait for what is there already.
var otherFaults = faults[:5]

// failNth has the n-th call fail until done, which says how many there were.
func failNth(calls *failcall.Injector, n int) (done func() (made int)) {
	made := 0
	calls.Set(func() unix.Errno {
		if made++; made == n {
			return otherFaults[n%len(otherFaults)]
		}
		return 0
	})
	return func() int { calls.Set(nil); return made }
}

// TestOtherCallsFail has each call but bpf(2) fail in turn, as a plane compares all that
// there is. Then the same plane, or the next process, brings the node to the table.
func TestOtherCallsFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *failcall.Injector, options kernel.Options) {
		ctx, p := context.Background(), newPlane(t, options)
		for n, made := 1, 1; made >= n-1; n++ {
			want := webTable(2+n%2, 2)
			done := failNth(calls, n)
			_, failed := p.Apply(ctx, want, kernel.VerifyAll)
			made = done()
			if n%9 == 0 {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				p = newPlane(t, options)
			}
			if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
				t.Fatalf("after call %d of %d failed (%v): %v", n, made, failed, err)
			}
			agrees(t, p, want)
			if t.Failed() {
				t.Fatalf("after call %d of %d failed (%v)", n, made, failed)
			}
		}
		removes(t, p, "failing calls")
	}, otherCalls...)
}

// callsApart is how far apart the calls are that fail in TestOtherCallsOfALifeFail.
const callsApart = 41

// TestOtherCallsOfALifeFail has some calls but bpf(2), far apart, fail as a plane starts,
// applies and removes. Then the next process brings the node to the table.
func TestOtherCallsOfALifeFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *failcall.Injector, options kernel.Options) {
		ctx, want := context.Background(), webTable(2, 2)
		for n, made := 1, 1; made >= n-callsApart; n += callsApart {
			p := newPlane(t, options)
			done := failNth(calls, n)
			_, failed := p.Apply(ctx, want, kernel.VerifyNothing)
			if failed == nil {
				failed = p.Remove(ctx, kernel.EndConnections)
			}
			made = done()
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			converges(t, options, want, "a call that failed")
			if t.Failed() {
				t.Fatalf("after call %d of %d failed (%v)", n, made, failed)
			}
		}
	}, otherCalls...)
}

// TestSocketsFail has each call of socket(2) fail in turn, from the start of a plane to
// its end. Then the next process brings the node to the table. Go makes this call without
// telling its scheduler: whoever answers needs a processor of its own, and no garbage
// collection that waits for the caller.
func TestSocketsFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *failcall.Injector, options kernel.Options) {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
		ctx, want := context.Background(), webTable(2, 2)
		n, made := 1, 1
		for ; made >= n-1; n++ {
			done := failNth(calls, n)
			p, failed := New(options)
			if failed == nil {
				_, failed = p.Apply(ctx, want, kernel.VerifyAll)
			}
			if p != nil && failed == nil {
				failed = p.Remove(ctx, kernel.EndConnections)
			}
			made = done()
			if p != nil {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
			converges(t, options, want, "a socket that failed")
			if t.Failed() {
				t.Fatalf("after call %d of %d failed (%v)", n, made, failed)
			}
		}
		if n < 4 {
			t.Errorf("only %d calls were made to fail", n-1)
		}
	}, unix.SYS_SOCKET)
}
