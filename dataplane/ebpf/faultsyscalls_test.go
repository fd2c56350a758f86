package ebpf

import (
	"context"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/syscallfault"
)

// otherCalls are those beside bpf(2) by which this plane changes and asks the kernel:
// netlink (links, qdiscs, filters, sockets), and the files of pins and of the state.
// For socket(2) and openat(2), see TestSocketsFail and TestOpeningFails. bind(2) is not among
// them: where it fails, vishvananda/netlink (nl.getNetlinkSocket) closes the socket's number and
// leaves it to a file, whose finalizer closes it again, by then another file's.
var otherCalls = []uint32{
	unix.SYS_SETSOCKOPT, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG,
	unix.SYS_MOUNT, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT,
}

// otherFaults are faults without EAGAIN, which would say to wait for what is there already.
var otherFaults = faults[:5]

// failNth has the n-th call fail until done, which says how many there were.
func failNth(calls *syscallfault.Injector, n int) (done func() (made int)) {
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
	inProcessWithFaults(t, otherCallsFail, otherCalls...)
}

func otherCallsFail(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
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
}

// callsApart is how far apart the calls are that fail in TestOtherCallsOfALifeFail.
const callsApart = 41

// TestOtherCallsOfALifeFail has some calls but bpf(2), far apart, fail as a plane starts,
// applies and removes. Then the next process brings the node to the table.
func TestOtherCallsOfALifeFail(t *testing.T) {
	inProcessWithFaults(t, otherCallsOfALifeFail, otherCalls...)
}

func otherCallsOfALifeFail(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
	lifeWithFaults(t, calls, options, callsApart)
}

// TestOpeningFails does the same with files that can't be opened: sysctls, cgroups, pins.
func TestOpeningFails(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		lifeWithFaults(t, calls, options, 13)
	}, unix.SYS_OPENAT)
}

func lifeWithFaults(t *testing.T, calls *syscallfault.Injector, options kernel.Options, apart int) {
	t.Helper()
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
}

// TestSocketsFail has each call of socket(2) fail in turn, from the start of a plane to
// its end. Then the next process brings the node to the table. Go makes this call without
// telling its scheduler: no garbage collection may wait for the caller.
func TestSocketsFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
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

// TestManySocketsFail has one call of socket(2) in ten fail, through many lives of a plane.
func TestManySocketsFail(t *testing.T) {
	inProcessWithFaults(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		ctx, want := context.Background(), webTable(2, 2)
		random, failed := rand.New(rand.NewPCG(3, 4)), 0
		for range 12 {
			calls.Set(func() unix.Errno {
				if random.IntN(10) > 0 {
					return 0
				}
				failed++
				return otherFaults[failed%len(otherFaults)]
			})
			p, err := New(options)
			if err == nil {
				_, err = p.Apply(ctx, want, kernel.VerifyAll)
			}
			if p != nil && err == nil {
				_ = p.Remove(ctx, kernel.EndConnections) // the next process, in converges, has to cope with what is left
			}
			calls.Set(nil) // from here on no call fails
			if p != nil {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
			converges(t, options, want, "sockets that failed")
		}
		// One call in ten fails, at random: a dozen lives of a plane must have met some.
		if failed < 5 {
			t.Errorf("only %d calls failed", failed)
		}
	}, unix.SYS_SOCKET)
}
