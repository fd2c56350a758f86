package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairway-net/fairway/model"
)

// changes are tables one after the other, and the sweeps between them.
func changes(tables ...*model.Table) (list []*Sweep) {
	for i := 1; i < len(tables); i++ {
		list = append(list, Plan(tables[i-1], tables[i], tables[i].Since(tables[i-1])))
	}
	return list
}

// What a flow's fate was after each of two changes it is after both, by the table of now.
func TestSweepsTogether(t *testing.T) {
	none := model.NewTable()
	empty, first, both, second := service(model.UDP, nil), service(model.UDP, nil, one), service(model.UDP, nil, one, two), service(model.UDP, nil, two)
	for _, c := range []struct {
		name    string
		tables  []*model.Table
		backend netip.AddrPort
		forget  bool
		urgent  bool
	}{
		{"comes, and gets a backend", []*model.Table{none, empty, first}, vip, true, false},
		{"comes, and a flow leads to its backend", []*model.Table{none, empty, first}, one, false, false},
		{"another backend, and back", []*model.Table{first, second, first}, two, true, true},
		{"another backend, and back: the old one is there", []*model.Table{first, second, first}, one, false, true},
		{"a backend goes, then nothing to do with it", []*model.Table{both, second, both, both}, two, false, true},
	} {
		var all *Sweep
		for _, s := range changes(c.tables...) {
			if s != nil {
				all = s.after(all)
			}
		}
		if got := all.Fate(&Flow{Proto: model.UDP, Client: client, Frontend: vip, Backend: c.backend}); got.Forget != c.forget {
			t.Errorf("%s: %+v", c.name, got)
		}
		if all.isUrgent() != c.urgent || !slices.Equal(all.Protocols(), []model.Protocol{model.UDP}) {
			t.Errorf("%s: urgent %v, of %v", c.name, all.isUrgent(), all.Protocols())
		}
	}
	tcp := changes(service(model.TCP, nil, one), service(model.TCP, orphans(model.OrphansReset, 0)))[0]
	mixed := tcp.after(changes(none, first)[0])
	if len(mixed.Protocols()) != 2 || !slices.Equal(mixed.kinds, []kind{everything}) {
		t.Errorf("of %v, %v", mixed.Protocols(), mixed.kinds)
	}
}

// What only came waits for a moment, together; what has gone doesn't, nor does what waits for
// the same reason.
func TestSweepsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs []int // how many changes each was of
		failing := false
		s := &Sweeper{Later: true, carryOut: func(_ context.Context, sweep *Sweep) error {
			if failing {
				return errors.New("no")
			}
			n := 0
			for e := sweep; e != nil; e = e.earlier {
				n++
			}
			runs = append(runs, n)
			return nil
		}}
		none, empty, first, second := model.NewTable(), service(model.UDP, nil), service(model.UDP, nil, one), service(model.UDP, nil, two)
		run := func(tables ...*model.Table) {
			t.Helper()
			for _, c := range changes(tables...) {
				if err := s.Run(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		}
		expect := func(what string, want ...int) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Equal(runs, want) {
				t.Errorf("%s: runs of %v changes, want %v", what, runs, want)
			}
		}
		run(none, empty, first)
		expect("at once")
		time.Sleep(2 * pauseAfter)
		expect("after a moment", 2)
		run(none, empty)
		run(first, second)
		expect("a backend has gone", 2, 2)
		time.Sleep(time.Second)
		expect("and nothing is left", 2, 2)
		for range 9 {
			run(none, empty)
			time.Sleep(pauseAfter / 2)
		}
		if s.mu.Lock(); len(runs) != 3 {
			t.Errorf("changes that don't end have it wait for ever: %v", runs)
		}
		s.mu.Unlock()
		time.Sleep(time.Second)

		fails := func(is bool) (before int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			failing = is
			return len(runs)
		}
		fails(true)
		run(none, empty)
		time.Sleep(time.Second)
		if err := s.Run(t.Context(), nil); err == nil {
			t.Error("that it failed isn't told")
		}
		before := fails(false)
		if err := s.Run(t.Context(), nil); err != nil || len(runs) != before+1 {
			t.Errorf("not run again: %v", err)
		}
		run(none, empty)
		if err := s.Close(); err != nil || len(runs) != before+2 {
			t.Errorf("not run at the end: %v", err)
		}
	})
}
