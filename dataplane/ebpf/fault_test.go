package ebpf

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/test/syscallfault"
)

// faults are what the kernel may answer for reasons of its own.
var faults = []unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}

// inFaultyProcess runs a test once more, in a process whose bpf(2) calls can fail.
func inFaultyProcess(t *testing.T, test func(t *testing.T, calls *syscallfault.Injector, options kernel.Options)) {
	t.Helper()
	inProcessWithFaults(t, test, unix.SYS_BPF)
}

// inProcessWithFaults runs a test once more, in a process whose calls of these numbers can fail.
func inProcessWithFaults(t *testing.T, test func(t *testing.T, calls *syscallfault.Injector, options kernel.Options), numbers ...uint32) {
	t.Helper()
	const child = "FAIRWAY_TEST_FAULTY"
	if os.Getenv(child) == "" {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		// Or calls are interrupted; and a thread that begins, in which libc opens a file of
		// its own, keeps a processor until it is answered.
		c.Env = append(os.Environ(), child+"=1", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=16")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	inNode(t, func(t *testing.T, options kernel.Options) {
		if err := newPlane(t, options).Close(); err != nil { // which probes the kernel, once for a process
			t.Fatal(err)
		}
		calls, err := syscallfault.Install(numbers...)
		if err != nil {
			t.Fatal(err)
		}
		test(t, calls, options)
	})
}

// TestEveryCallFails has each call of bpf(2) fail in turn as a plane compares and
// changes tables. Then the same plane, or the next process, brings the node to the table.
func TestEveryCallFails(t *testing.T) {
	inFaultyProcess(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		ctx := context.Background()
		p := newPlane(t, options)
		if _, err := p.Apply(ctx, webTable(3, 2), kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		for n := 1; ; n++ {
			want := webTable(3+n%2, 1+n%3)
			made := 0
			calls.Set(func() unix.Errno {
				if made++; made == n {
					return faults[n%len(faults)]
				}
				return 0
			})
			_, failed := p.Apply(ctx, want, kernel.VerifyIf(n%3 > 0))
			calls.Set(nil)
			if n%5 == 0 {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				p = newPlane(t, options)
			}
			if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
				t.Fatalf("after %v of call %d (%v): %v", faults[n%len(faults)], n, failed, err)
			}
			agrees(t, p, want)
			if t.Failed() {
				t.Fatalf("after %v of call %d (%v)", faults[n%len(faults)], n, failed)
			}
			if made < n && n%3 > 0 {
				t.Logf("%d calls", made)
				break
			}
		}
		removes(t, p, "failing calls")
	})
}

// TestFirstCallsFail has calls fail with which programs are loaded, attached and
// removed: a few of them, far apart.
func TestFirstCallsFail(t *testing.T) {
	inFaultyProcess(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		ctx, want := context.Background(), webTable(2, 2)
		for n, made := 1, 0; made >= n-97 && n < 600; n += 97 {
			made = 0
			fault := faults[n%len(faults)]
			p := newPlane(t, options)
			calls.Set(func() unix.Errno {
				if made++; made == n {
					return fault
				}
				return 0
			})
			_, failed := p.Apply(ctx, want, kernel.VerifyNothing)
			if failed == nil {
				failed = p.Remove(ctx, kernel.EndConnections)
			}
			calls.Set(nil)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			p = newPlane(t, options)
			if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
				t.Fatalf("after %v of call %d (%v): %v", fault, n, failed, err)
			}
			agrees(t, p, want)
			removes(t, p, fault.Error())
			if t.Failed() {
				t.Fatalf("after %v of call %d (%v)", fault, n, failed)
			}
		}
	})
}

// TestManyCallsFail has one call in ten fail while one plane applies tables.
func TestManyCallsFail(t *testing.T) {
	inFaultyProcess(t, func(t *testing.T, calls *syscallfault.Injector, options kernel.Options) {
		ctx := context.Background()
		p := newPlane(t, options)
		random, failed := rand.New(rand.NewPCG(1, 2)), 0
		for n := range 40 {
			want := webTable(3+n%7, 1+n%3)
			calls.Set(func() unix.Errno {
				if random.IntN(10) > 0 {
					return 0
				}
				failed++
				return faults[failed%len(faults)]
			})
			_, err := p.Apply(ctx, want, kernel.VerifyIf(n%3 == 0))
			calls.Set(nil)
			if err != nil && n%4 > 0 {
				continue // the next one has to do with it
			}
			if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
				t.Fatal(err)
			}
			agrees(t, p, want)
		}
		if failed < 10 {
			t.Errorf("only %d calls failed", failed)
		}
		removes(t, p, "failing calls")
	})
}
