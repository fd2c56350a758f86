package nftables

import (
	"context"
	"fmt"
	"testing"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// BenchmarkLoad is the first Apply on an empty kernel.
func BenchmarkLoad(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{1000, 5}, {10000, 5}, {30000, 3}} {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			inNamespace(b)
			table := synthetic(size.services, size.endpoints)
			b.ReportAllocs()
			for b.Loop() {
				p := newPlane(b, kernel.Options{})
				apply(b, p, table, false)
				b.StopTimer()
				if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkAdopt is the first Apply over what an earlier process left.
func BenchmarkAdopt(b *testing.B) {
	inNamespace(b)
	table := synthetic(10000, 5)
	apply(b, newPlane(b, kernel.Options{}), table, false)
	b.ReportAllocs()
	for b.Loop() {
		apply(b, newPlane(b, kernel.Options{}), table, false)
	}
}

// BenchmarkEndpointChange is one endpoint that comes or goes.
func BenchmarkEndpointChange(b *testing.B) {
	for _, services := range []int{1000, 10000, 30000} {
		b.Run(fmt.Sprintf("%dx10", services), func(b *testing.B) {
			inNamespace(b)
			tables := [2]*model.Table{synthetic(services, 10)}
			tables[1] = withBackend(tables[0], "10.200.0.1:8080")
			p := newPlane(b, kernel.Options{})
			apply(b, p, tables[0], false)
			apply(b, p, tables[1], false)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				apply(b, p, tables[n%2], false)
				n++
			}
		})
	}
}
