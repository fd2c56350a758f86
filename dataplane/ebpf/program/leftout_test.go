package program

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// tableOf has so many Services with so many endpoints each.
func tableOf(services, endpoints int) *model.Table {
	e := model.NewTable().Edit()
	for i := range services {
		set(e, i, endpoints)
	}
	return e.Table()
}

func set(e *model.Edit, i, endpoints int) {
	p := &model.Pool{ID: model.PoolID{Name: fmt.Sprintf("default/web-%d:http", i), Proto: model.TCP}}
	for j := range endpoints {
		p.Backends = append(p.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i), byte(j + 1)}), Port: 8080, Weight: 1})
	}
	e.SetPool(p)
	route := model.Route{Pool: p.ID}
	e.SetFrontend(&model.Frontend{Key: model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Proto: model.TCP},
		Name: p.ID.Name, Routes: [model.NumOrigins]model.Route{route, route, route}})
}

// applied are the tables after a plan.
func applied(c Contents, p *Plan) {
	for t, list := range p.Put {
		for _, e := range list {
			c[t][e.Key] = e.Value
		}
	}
	for t, list := range p.Delete {
		for _, e := range list {
			delete(c[t], e.Key)
		}
	}
}

func leftOutOf(err error) int {
	var full *kernel.FullError
	if errors.As(err, &full) {
		return full.LeftOut
	}
	return 0
}

// TestNoIDs has fewer ids than a table needs: what is left out is said with each
// change, costs nothing meanwhile, and comes as soon as there are ids.
func TestNoIDs(t *testing.T) {
	const services = 8
	st, have := NewState(""), NewContents()
	st.ids.next = maxIDs - 30 // of 48
	table := model.NewTable()
	step := func(want *model.Table) (leftOut, written int) {
		t.Helper()
		p, err := st.Change(table, want, want.Since(table))
		applied(have, p)
		table = want
		return leftOutOf(err), p.Size()
	}
	first, _ := step(tableOf(services, 4))
	if first == 0 {
		t.Fatal("nothing is left out")
	}
	for i := range services {
		if id := (model.PoolID{Name: fmt.Sprintf("default/web-%d:http", i), Proto: model.TCP}); st.PoolNumber(id) != 0 {
			p := *table.Pool(id)
			p.Affinity = time.Minute
			e := table.Edit()
			e.SetPool(&p)
			if n, written := step(e.Table()); n != first || written != 1 {
				t.Errorf("%d left out, %d elements written; expected %d and 1", n, written, first)
			}
		}
	}
	left := first
	for i := range services - 5 {
		e := table.Edit()
		e.DeletePool(model.PoolID{Name: fmt.Sprintf("default/web-%d:http", i), Proto: model.TCP})
		e.DeleteFrontend(model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Proto: model.TCP})
		n, _ := step(e.Table())
		if n > left {
			t.Errorf("%d left out, and %d before", n, left)
		}
		left = n
	}
	if left != 0 {
		t.Errorf("%d are left out, though there are ids for all", left)
	}
	st, err := Adopt(have, table, "")
	if err != nil {
		t.Fatal(err)
	}
	for d := range have.Differences(st.All(table)) {
		t.Errorf("the tables differ from what they should hold: %+v", d)
	}
}
