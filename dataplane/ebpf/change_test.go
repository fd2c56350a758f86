package ebpf

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/model"
)

// webTable has so many Services with so many endpoints each.
func webTable(services, endpoints int) *model.Table {
	e := model.NewTable().Edit()
	e.SetSettings(&model.Settings{Reserved: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}})
	for i := range services {
		p := &model.Pool{ID: model.PoolID{Name: fmt.Sprintf("default/web-%d:http", i), Proto: model.TCP}}
		for j := range endpoints {
			p.Backends = append(p.Backends, backend(i, j))
		}
		e.SetPool(p)
		route := model.Route{Pool: p.ID}
		e.SetFrontend(&model.Frontend{
			Key:    model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Proto: model.TCP},
			Name:   p.ID.Name,
			Routes: [model.NumOrigins]model.Route{route, route, route},
		})
	}
	return e.Table()
}

func backend(i, j int) model.Backend {
	return model.Backend{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), Port: 8080, Weight: 1}
}

// TestConstantCost: an endpoint more or less is a constant number of steps.
func TestConstantCost(t *testing.T) {
	st := program.NewState("")
	old := webTable(100, 50)
	if err := st.Build(old); err != nil {
		t.Fatal(err)
	}
	p := *old.Pool(model.PoolID{Name: "default/web-7:http", Proto: model.TCP})
	p.Backends = append(p.Backends[:20:20], p.Backends[21:]...)
	e := old.Edit()
	e.SetPool(&p)
	less := e.Table()
	for _, step := range []struct{ old, want *model.Table }{{old, less}, {less, old}} {
		plan, err := st.Change(step.old, step.want, step.want.Since(step.old))
		if err != nil {
			t.Fatal(err)
		}
		if n := plan.Size(); n > 4 {
			t.Errorf("%d steps for one endpoint: %v", n, plan)
		}
	}
}

// TestStartCost: what a start writes is in proportion to what there is: two
// elements for an endpoint, and three for a Service.
func TestStartCost(t *testing.T) {
	for _, size := range []struct{ services, endpoints int }{{100, 1}, {1000, 5}, {3000, 50}} {
		st, table := program.NewState(""), webTable(size.services, size.endpoints)
		if err := st.Build(table); err != nil {
			t.Fatal(err)
		}
		n := 0
		for range st.All(table) {
			n++
		}
		const settings = 1
		if want := settings + size.services*(3+2*size.endpoints); n != want {
			t.Errorf("%d elements for %d Services with %d endpoints each, expected %d", n, size.services, size.endpoints, want)
		}
	}
}

// TestSizes: there is room for just as many elements as are put, whatever the scheduler.
func TestSizes(t *testing.T) {
	for _, scheduler := range []model.Scheduler{model.Random, model.MaglevHashing} {
		st, table := program.NewState(string(scheduler)), webTable(10, 3)
		e := table.Edit()
		p := *table.Pool(model.PoolID{Name: "default/web-7:http", Proto: model.TCP})
		p.Stable, p.Backends = true, append([]model.Backend{}, p.Backends...)
		p.Backends[0].Weight = 3
		p.Draining = []model.Backend{backend(7, 100)}
		e.SetPool(&p)
		table = e.Table()
		if err := st.Build(table); err != nil {
			t.Fatal(err)
		}
		put := map[program.TableName]int{}
		for e := range st.All(table) {
			put[e.Table]++
		}
		for name, n := range st.Sizes() {
			if n != put[name] {
				t.Errorf("scheduler %s, table %s: room for %d elements, and %d are put", scheduler, name, n, put[name])
			}
			delete(put, name)
		}
		if delete(put, program.Prefixes); len(put) > 0 { // which is never replaced by a larger one
			t.Errorf("scheduler %s: no room for %v", scheduler, put)
		}
	}
}
