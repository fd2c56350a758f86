package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/lab/topology"
	"github.com/fairway-net/fairway/model"
)

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func applied(b *testing.B, p *Plane, want *model.Table) {
	b.Helper()
	result, err := p.Apply(context.Background(), want, kernel.VerifyNothing)
	check(b, errors.Join(err, result.Err()))
}

// BenchmarkEndpointChange is one endpoint that comes or goes.
func BenchmarkEndpointChange(b *testing.B) {
	for _, services := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%dx10", services), func(b *testing.B) {
			tables := [2]*model.Table{webTable(services, 10)}
			tables[1] = withBackend(tables[0])
			onPlane(b, func(p *Plane) {
				applied(b, p, tables[0])
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					n++
					applied(b, p, tables[n%2])
				}
			})
		})
	}
}

// BenchmarkLoad is the first Apply, programs included.
func BenchmarkLoad(b *testing.B) {
	for _, services := range []int{1, 10000} {
		b.Run(fmt.Sprintf("%dx5", services), func(b *testing.B) {
			table := webTable(services, 5)
			onPlane(b, func(p *Plane) {
				for b.Loop() {
					applied(b, p, table)
					b.StopTimer()
					check(b, p.Remove(context.Background(), kernel.EndConnections))
					b.StartTimer()
				}
			})
		})
	}
}

// withBackend is the table with an endpoint more in one pool.
func withBackend(t *model.Table) *model.Table {
	p := *t.Pool(model.PoolID{Name: "default/web-7:http", Proto: model.TCP})
	p.Backends = append(p.Backends[:len(p.Backends):len(p.Backends)], backend(7, 200))
	e := t.Edit()
	e.SetPool(&p)
	return e.Table()
}

// onPlane runs a benchmark on a node without traffic.
func onPlane(b *testing.B, run func(*Plane)) {
	b.Helper()
	lab, err := topology.New("bench-"+strconv.Itoa(os.Getpid()), topology.Options{})
	check(b, err)
	b.Cleanup(func() { check(b, lab.Remove()) })
	node, err := lab.AddNode("node")
	check(b, err)
	cgroup, err := node.Cgroup()
	check(b, err)
	check(b, node.Do(func() error {
		p, err := New(kernel.Options{Cgroup: cgroup, StateDir: b.TempDir()})
		if err != nil {
			return err
		}
		run(p)
		return p.Remove(context.Background(), kernel.EndConnections)
	}))
}
