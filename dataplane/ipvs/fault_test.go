package ipvs

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	mobyipvs "github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
)

// everyCall has each call fail, which takes minutes.
var everyCall = flag.Bool("every-call", false, "have every call of the kernel fail, and not only some")

// someCalls is at which distance calls fail otherwise. It shares no factor with the
// number of ways in which they do.
const someCalls = 61

// faults are what the kernel may answer for reasons of its own.
var faults = []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EEXIST, unix.EINVAL, unix.EAGAIN}

// errKilled stands for the end of the process.
var errKilled = errors.New("killed")

// faulty has calls of IPVS fail. Of each two that change something, one has done so
// nevertheless: the kernel's answer was lost.
type faulty struct {
	lvs.Balancer
	fault fault
	turn  int
}

func (f *faulty) change(do func() error) error {
	f.turn++
	err := f.fault.next()
	if err == nil {
		return do()
	}
	if f.turn%2 == 0 && !errors.Is(err, errKilled) {
		if failed := do(); failed != nil {
			return failed
		}
	}
	return err
}

func (f *faulty) NewService(s *mobyipvs.Service) error {
	return f.change(func() error { return f.Balancer.NewService(s) })
}

func (f *faulty) UpdateService(s *mobyipvs.Service) error {
	return f.change(func() error { return f.Balancer.UpdateService(s) })
}

func (f *faulty) DelService(s *mobyipvs.Service) error {
	return f.change(func() error { return f.Balancer.DelService(s) })
}

func (f *faulty) NewDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	return f.change(func() error { return f.Balancer.NewDestination(s, d) })
}

func (f *faulty) UpdateDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	return f.change(func() error { return f.Balancer.UpdateDestination(s, d) })
}

func (f *faulty) DelDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	return f.change(func() error { return f.Balancer.DelDestination(s, d) })
}

func (f *faulty) SetConfig(c *mobyipvs.Config) error {
	return f.change(func() error { return f.Balancer.SetConfig(c) })
}

func (f *faulty) GetConfig() (*mobyipvs.Config, error) {
	if err := f.fault.next(); err != nil {
		return nil, err
	}
	return f.Balancer.GetConfig()
}

func (f *faulty) GetServices() ([]*mobyipvs.Service, error) {
	if err := f.fault.next(); err != nil {
		return nil, err
	}
	return f.Balancer.GetServices()
}

func (f *faulty) GetDestinations(s *mobyipvs.Service) ([]*mobyipvs.Destination, error) {
	if err := f.fault.next(); err != nil {
		return nil, err
	}
	return f.Balancer.GetDestinations(s)
}

// Do has single commands fail, or the call.
func (f *faulty) Do(commands []lvs.ServerCommand) (map[int]error, error) {
	for i := range commands {
		if err := f.fault.next(); err != nil && i == 0 {
			return nil, err
		} else if err != nil {
			failed, doErr := f.Balancer.Do(commands[:i])
			if doErr != nil {
				return nil, doErr
			}
			for ; i < len(commands); i++ {
				failed[i] = err
			}
			return failed, nil
		}
	}
	return f.Balancer.Do(commands)
}

// failing has all calls of a plane fail as a function says; commands of iptables do
// with the context.
func failing(t *testing.T, p *Plane, f fault) context.Context {
	t.Helper()
	under := p.balancer
	if already, is := under.(*faulty); is {
		under = already.Balancer
	}
	p.balancer = &faulty{Balancer: under, fault: f}
	p.settings.Balancer = p.balancer
	p.sets.Fault, p.dummy.fault, p.dummy.bulk.Fault = f, f, f
	return iptables.WithFault(t.Context(), f)
}

// lives are what a plane does to the kernel in its life.
var lives = []struct {
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

// between are two tables of every kind of object, and another that differs in each.
func between(t *testing.T) [2]*model.Table {
	first := everything(t)
	random, second := rand.New(rand.NewPCG(3, 4)), first
	for range 6 {
		second = randomStep(t, random, second)
	}
	return [2]*model.Table{first, second}
}

// TestEveryCallFails: calls of the kernel fail in turn, in every way, and the process
// goes on; or it ends there. Then the same plane, or the next process, brings
// the kernel to a table, and leaves nothing when it is removed.
func TestEveryCallFails(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		of, empty, reached, step := between(t), dump(t), map[string]int{}, someCalls
		if *everyCall {
			step = 1
		}
		for n := 1; ; n += step {
			kills, cause := n%2 == 0, faults[n/2%len(faults)]
			f, state := newFakeIPVS(), t.TempDir()
			p := planeIn(t, f, state)
			calls, failedIn := 0, ""
			ctx := failing(t, p, func() error {
				switch calls++; {
				case calls >= n && kills:
					return errKilled
				case calls == n:
					return cause
				}
				return nil
			})
			for i, s := range lives {
				err := s.do(ctx, p, of)
				if err != nil && calls < n {
					t.Fatalf("%s: %v, though nothing has failed", s.name, err)
				}
				if calls < n {
					continue
				}
				failedIn = s.name
				reached[failedIn]++
				failing(t, p, nil)
				if err == nil && s.name != "Remove" { // then it is done all the same
					same(t, p, of[i%2])
				}
				break
			}
			if failedIn == "" {
				break
			}
			if kills {
				p = planeIn(t, f, state)
			}
			standIn(t) // where it was removed
			want := of[n/2%2]
			apply(t, p, want, false)
			if err := p.Remove(t.Context(), kernel.EndConnections); err != nil {
				t.Fatalf("after a fault in %s: %v", failedIn, err)
			}
			if diff := cmp.Diff(empty, dump(t)); diff != "" || len(f.servers) != 0 {
				t.Fatalf("after call %d failed in %s, and removal: %d servers, and (-before +after)\n%s", n, failedIn, len(f.servers), diff)
			}
		}
		for _, s := range lives {
			if reached[s.name] == 0 {
				t.Errorf("nothing failed in %s: %v", s.name, reached)
			}
		}
		t.Logf("calls that failed: %v", reached)
	})
}

// TestOneCallInTenFails: with waitTimeout everything gets there.
func TestOneCallInTenFails(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		p, failed, off := newTestPlane(t, newFakeIPVS()), 0, false
		ctx := failing(t, p, func() error {
			if off || random.IntN(10) > 0 {
				return nil
			}
			failed++
			return faults[failed%len(faults)]
		})
		of := between(t)
		for n := range 4 {
			// The first comparison takes too many calls for all of them to succeed.
			for attempts := 0; attempts < 5 && applied(ctx, p, of[n%2], kernel.VerifyIf(n == 3)) != nil; attempts++ {
			}
			off = true
			if err := applied(ctx, p, of[n%2], kernel.VerifyNothing); err != nil {
				t.Fatal(err)
			}
			same(t, p, of[n%2])
			off = false
		}
		if failed < 4 {
			t.Errorf("only %d calls failed", failed)
		}
	})
}
