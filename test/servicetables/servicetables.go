// Package servicetables makes small tables for tests.
package servicetables

import (
	"fmt"
	"net/netip"

	"github.com/fairway-net/fairway/model"
)

// Key is where the Service with a number is reached.
func Key(n int) model.Key {
	return model.Key{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), Port: 80, Proto: model.TCP}
}

// Services has these Services, each with as many endpoints as its number.
func Services(numbers ...int) *model.Table {
	e := model.NewTable().Edit()
	for _, n := range numbers {
		id := model.PoolID{Name: fmt.Sprintf("default/s%d:http", n), Proto: model.TCP}
		pool := &model.Pool{ID: id}
		for i := range n {
			pool.Backends = append(pool.Backends, model.Backend{Addr: netip.AddrFrom4([4]byte{10, 244, byte(n), byte(i)}), Port: 80, Weight: 1})
		}
		e.SetPool(pool)
		e.SetFrontend(&model.Frontend{Key: Key(n), Name: id.Name, Routes: [model.NumOrigins]model.Route{{Pool: id}, {Pool: id}, {Pool: id}}})
	}
	return e.Table()
}
