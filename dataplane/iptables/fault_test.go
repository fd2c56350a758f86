package iptables

import (
	"context"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// faults are what the kernel may answer for reasons of its own.
var faults = []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}

// steps are what a plane does to the kernel in its life.
var steps = []struct {
	name string
	do   func(context.Context, *Plane, [2]*model.Table) error
}{
	{"first Apply", func(ctx context.Context, p *Plane, of [2]*model.Table) error {
		return applied(ctx, p, of[0], kernel.VerifyNothing)
	}},
	{"change", func(ctx context.Context, p *Plane, of [2]*model.Table) error {
		return applied(ctx, p, of[1], kernel.VerifyNothing)
	}},
	{"comparison", func(ctx context.Context, p *Plane, of [2]*model.Table) error {
		return applied(ctx, p, of[0], kernel.VerifyAll)
	}},
	{"Remove", func(ctx context.Context, p *Plane, _ [2]*model.Table) error {
		return p.Remove(ctx, kernel.EndConnections)
	}},
}

func applied(ctx context.Context, p *Plane, want *model.Table, verify kernel.Verification) error {
	_, err := p.Apply(ctx, want, verify)
	return err
}

// failNth has the n-th command from now on fail.
func failNth(t *testing.T, n int, fault error) (ctx context.Context, calls *int) {
	calls = new(int)
	return iptables.WithFault(t.Context(), func() error {
		if *calls++; *calls == n {
			return fault
		}
		return nil
	}), calls
}

// TestEveryCommandFails: each command fails in turn, in every way, and the process goes on
// or ends there. Then the same plane, or the next process, brings the kernel to the table,
// and leaves nothing when it is removed.
func TestEveryCommandFails(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		r := rand.New(rand.NewPCG(7, 8))
		first := randomEdit(r, model.NewTable(), 4, 20)
		of := [2]*model.Table{first, randomEdit(r, first, 4, 6)}
		empty := dump(t)
		reached := map[string]int{}
		for n := 1; ; n++ {
			p, fault, failedIn := newPlane(t, o), faults[n%len(faults)], ""
			ctx, calls := failNth(t, n, fault)
			for _, s := range steps {
				err := s.do(ctx, p, of)
				if err != nil && *calls < n {
					t.Fatalf("%s: %v, though nothing has failed", s.name, err)
				}
				if err == nil && *calls >= n {
					t.Errorf("%s: command %d ended with %v, and nobody was told", s.name, n, fault)
				}
				if *calls >= n {
					failedIn = s.name
					break
				}
			}
			if failedIn == "" {
				break
			}
			reached[failedIn]++
			if n%2 == 0 {
				p = newPlane(t, o) // the first one was killed
			}
			apply(t, p, of[n%2], false)
			check(t, p, of[n%2])
			if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
				t.Fatal(err)
			}
			if left := dump(t); left != empty {
				t.Fatalf("after a failure in %s and removal there is\n%s", failedIn, left)
			}
		}
		for _, s := range steps {
			if reached[s.name] == 0 {
				t.Errorf("nothing failed in %s: %v", s.name, reached)
			}
		}
		t.Logf("commands that failed: %v", reached)
	})
}

// TestOneCommandInTenFails: with waitTimeout everything gets there.
func TestOneCommandInTenFails(t *testing.T) {
	each(t, func(t *testing.T, o kernel.Options) {
		r := rand.New(rand.NewPCG(5, 6))
		table, p := model.NewTable(), newPlane(t, o)
		ctx := iptables.WithFault(t.Context(), func() error {
			if r.IntN(10) == 0 {
				return faults[r.IntN(len(faults))]
			}
			return nil
		})
		for n := range 6 {
			table = randomEdit(r, table, 4, 10)
			for attempts := 0; applied(ctx, p, table, kernel.VerifyIf(n%3 == 0)) != nil; attempts++ {
				if attempts == 500 {
					t.Fatal("it never gets there")
				}
			}
			check(t, p, table)
		}
	})
}
