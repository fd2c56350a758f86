package kernel

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/model"
)

func tallied(names ...string) *model.Table {
	e := model.NewTable().Edit()
	for i, name := range names {
		id := model.PoolID{Name: name, Proto: model.TCP}
		e.SetPool(&model.Pool{ID: id})
		e.SetFrontend(&model.Frontend{
			Key:  model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Proto: model.TCP},
			Name: name, Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}},
		})
	}
	return e.Table()
}

func TestTally(t *testing.T) {
	var tally Tally
	table := tallied("a", "b", "a")
	read := func(table *model.Table, objects map[TallyID]uint64, err error) {
		t.Helper()
		got := tally.Read(table, func() error {
			for id, n := range objects {
				tally.Add(id.What, tally.Since(id, Count{Connections: n, In: 10 * n}))
			}
			return err
		})
		if !errors.Is(got, err) {
			t.Fatal(got)
		}
	}
	expect := func(when string, want map[string]uint64) {
		t.Helper()
		got := map[string]uint64{}
		for _, c := range tally.Counts() {
			got[table.Frontend(c.Frontend).Name] = c.Connections
			if c.In != 10*c.Connections {
				t.Errorf("%s: %+v", when, c)
			}
		}
		for name, n := range want {
			if got[name] != n || len(got) != len(want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
	}
	a, other, b, gone := TallyID{"1", "a"}, TallyID{"2", "a"}, TallyID{"1", "b"}, TallyID{"1", "gone"}
	read(table, map[TallyID]uint64{a: 3, b: 1, gone: 9}, nil)
	expect("at first", map[string]uint64{"a": 3, "b": 1})
	read(table, map[TallyID]uint64{a: 5, other: 2, b: 1}, nil)
	expect("grown, and one more", map[string]uint64{"a": 7, "b": 1})
	read(table, map[TallyID]uint64{a: 100}, errors.New("half read"))
	read(table, map[TallyID]uint64{a: 1, b: 1}, nil)
	expect("made anew, and one gone", map[string]uint64{"a": 8, "b": 1})
	read(table, map[TallyID]uint64{other: 4, b: 2}, nil)
	expect("back", map[string]uint64{"a": 12, "b": 2})
	table = tallied("c", "b") // the frontend of a is another's now
	read(table, map[TallyID]uint64{other: 4, b: 5}, nil)
	expect("without a", map[string]uint64{"b": 5})
}
