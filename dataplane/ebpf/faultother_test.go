package ebpf

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/testing/failcall"
)

// otherCalls are those beside bpf(2) by which this plane changes and asks the kernel:
// netlink (links, qdiscs, filters, sockets), and the files of pins and of the state.
// (Not socket(2): Go has it done without telling its scheduler, which needs to answer.)
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

// TestOtherCallsOfALifeFail has some calls but bpf(2), far apart, fail as a plane starts,
// applies and removes. Then the next process brings the node to the table.
func TestOtherCallsOfALifeFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *failcall.Injector, options kernel.Options) {
		const apart = 41
		ctx, want := context.Background(), webTable(2, 2)
		for n, made := 1, 1; made >= n-apart; n += apart {
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
