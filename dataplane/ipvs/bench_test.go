package ipvs

import (
	"fmt"
	"testing"

	"github.com/fairway-net/fairway/model"
)

// BenchmarkEndpointChange works out one endpoint change in a table of 10,000
// Services with 10 endpoints each (the messages to the kernel come on top).
func BenchmarkEndpointChange(b *testing.B) {
	edit := model.NewTable().Edit()
	edit.SetSettings(settings())
	pools := make([]*model.Pool, 10000)
	for n := range pools {
		name := fmt.Sprintf("ns/svc%d:p", n)
		var at []string
		for e := range 10 {
			at = append(at, fmt.Sprintf("10.%d.%d.%d:80", 100+e, n/250, n%250))
		}
		pools[n] = &model.Pool{ID: model.PoolID{Name: name, Proto: model.TCP}, Backends: backends(at...)}
		edit.SetPool(pools[n])
		r := model.Route{Pool: pools[n].ID}
		edit.SetFrontend(&model.Frontend{Key: key(fmt.Sprintf("10.96.%d.%d:80", n/250, n%250), model.TCP), Name: name, Routes: [model.NumOrigins]model.Route{r, r, r}})
		edit.SetFrontend(&model.Frontend{Key: key(fmt.Sprintf("192.168.9.1:%d", 30000+n), model.TCP), Name: name, FrontendType: model.NodePort, Routes: [model.NumOrigins]model.Route{r, r, r}})
	}
	table := edit.Table()
	s := newState(defaultMasqueradeMark)
	s.move(table, sorted(table))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := *pools[i%len(pools)]
		p.Backends = p.Backends[i/len(pools)%2:]
		edit := table.Edit()
		edit.SetPool(&p)
		next := edit.Table()
		s.move(next, next.Since(table))
		table = next
	}
}
