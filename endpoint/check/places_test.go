package check

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestTarpits: a namespace whose endpoints hold every check that begins doesn't keep
// other Services' from being asked, nor does one Service those of its namespace.
func TestTarpits(t *testing.T) {
	for name, tarpit := range map[string]func(i int) Tenant{
		"of a Service":       func(int) Tenant { return Tenant{"shop", "tarpit"} },
		"of many Services":   func(i int) Tenant { return Tenant{"evil", fmt.Sprint(i)} },
		"of many namespaces": func(i int) Tenant { return Tenant{fmt.Sprint("evil", i%5), fmt.Sprint(i)} },
	} {
		t.Run(name, func(t *testing.T) {
			var held atomic.Int64
			served := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			s := NewScheduler(func(ctx context.Context, target Target) (Result, error) {
				if target.Tenant.Service == "web" {
					if held.Load() > 500 {
						select {
						case served <- struct{}{}:
						default:
						}
					}
					return good, nil
				}
				held.Add(1)
				<-ctx.Done()
				return Result{}, ctx.Err()
			}, func(int, Verdict) {})
			spec := &Spec{Kind: TCP, Interval: Shortest, Timeout: Shortest, Rise: 1, Fall: 1}
			for i := range 2 * atOnce {
				s.Set(i, Target{Spec: spec, Tenant: tarpit(i)}, Unknown)
			}
			s.Set(-1, Target{Spec: spec, Tenant: Tenant{"shop", "web"}}, Unknown)
			done := make(chan struct{})
			go func() { s.Run(ctx); close(done) }()
			for range 20 {
				select {
				case <-served:
				case <-time.After(time.Minute):
					t.Fatalf("the other Service is not asked any more, while %d checks are held", held.Load())
				}
			}
			cancel()
			<-done
		})
	}
}

// TestPlacesComeBack: whoever waited is asked when a place is free, and no place is lost.
func TestPlacesComeBack(t *testing.T) {
	p := newPlaces(9)
	one, other := Tenant{"a", "x"}, Tenant{"a", "y"}
	takes := func(t Tenant) (n int) {
		for p.take(t) {
			n++
		}
		return n
	}
	if n := takes(one); n != 3 {
		t.Errorf("a Service has %d of 9", n)
	}
	if n := takes(other); n == 0 || p.free == 0 {
		t.Errorf("its namespace has %d more, and %d are free", n, p.free)
	}
	for p.services[one] > 0 {
		p.give(one)
	}
	for p.services[other] > 0 {
		p.give(other)
	}
	if p.free != 9 || len(p.services)+len(p.namespaces) > 0 {
		t.Errorf("left: %+v", p)
	}
}
