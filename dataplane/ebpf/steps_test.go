package ebpf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// namedSteps are the names of the steps of Apply and of Remove.
func namedSteps(t *testing.T, options kernel.Options, want *model.Table) (apply, remove map[string]bool) {
	t.Helper()
	apply, remove = map[string]bool{}, map[string]bool{}
	p, into := newPlane(t, options), apply
	p.steps.Reached = func(name string) error { into[name] = true; return nil }
	if _, err := p.Apply(context.Background(), want, kernel.VerifyNothing); err != nil {
		t.Fatal(err)
	}
	into = remove
	if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
		t.Fatal(err)
	}
	return apply, remove
}

// converges has the next process bring the node to the table, and remove all.
func converges(t *testing.T, options kernel.Options, want *model.Table, after string) {
	t.Helper()
	p := newPlane(t, options)
	if _, err := p.Apply(context.Background(), want, kernel.VerifyNothing); err != nil {
		t.Errorf("after %s: %v", after, err)
	}
	agrees(t, p, want)
	removes(t, p, after)
}

func removes(t *testing.T, p *Plane, after string) {
	t.Helper()
	if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
		t.Errorf("after %s: remove: %v", after, err)
	}
	if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
		t.Errorf("after %s: pins are left: %v", after, err)
	}
	agrees(t, p, nil)
}

// abandon has a plane end at its n-th arrival at a step. It may be that it doesn't
// come there so often.
func abandon(t *testing.T, p *Plane, step string, n int, do func() error) {
	t.Helper()
	p.steps.Reached = func(name string) error {
		if name == step {
			n--
		}
		if n < 0 {
			return errKilled
		}
		return nil
	}
	if err := do(); err != nil && !errors.Is(err, errKilled) {
		t.Errorf("killed after step %q: %v", step, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestKilled ends a process at each step of Apply and of Remove, at the first time
// and at a later one. The next process applies the table and leaves nothing behind;
// so does one that only removes.
func TestKilled(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		ctx, want := context.Background(), webTable(3, 2)
		apply, remove := namedSteps(t, options, want)
		if len(apply) < 10 || len(remove) < 4 {
			t.Fatalf("steps: %v, %v", apply, remove)
		}
		for step := range apply {
			for n := range 2 {
				after := fmt.Sprintf("Apply was killed at step %q, time %d", step, n)
				p := newPlane(t, options)
				abandon(t, p, step, n, func() error { _, err := p.Apply(ctx, want, kernel.VerifyNothing); return err })
				if n == 0 {
					converges(t, options, want, after)
				} else {
					removes(t, newPlane(t, options), after)
				}
			}
		}
		for step := range remove {
			for n := range 2 {
				after := fmt.Sprintf("Remove was killed at step %q, time %d", step, n)
				p := newPlane(t, options)
				if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
					t.Fatal(err)
				}
				abandon(t, p, step, n, func() error { return p.Remove(ctx, kernel.EndConnections) })
				if n == 0 {
					converges(t, options, want, after)
				} else {
					removes(t, newPlane(t, options), after)
				}
			}
		}
	})
}

// TestFailingCalls has steps fail as the kernel's calls do, one in ten, while one
// plane applies tables: in the end, the node is as it should be.
func TestFailingCalls(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		ctx := context.Background()
		p := newPlane(t, options)
		random := rand.New(rand.NewPCG(1, 2))
		errnos := []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}
		failed := 0
		p.steps.Reached = func(string) error {
			if random.IntN(10) > 0 {
				return nil
			}
			failed++
			return errnos[failed%len(errnos)]
		}
		var want *model.Table
		for n := range 30 {
			want = webTable(3+n%7, 1+n%3)
			_, err := p.Apply(ctx, want, kernel.VerifyIf(n%3 == 0))
			for again := 0; err != nil && again < 20; again++ {
				_, err = p.Apply(ctx, want, kernel.VerifyNothing)
			}
		}
		if failed < 10 {
			t.Errorf("only %d steps failed", failed)
		}
		p.steps.Reached = nil
		if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		agrees(t, p, want)
		removes(t, p, "failing calls")
	})
}
