package iptables

import (
	"context"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// The full load, and one endpoint change with everything installed.
func BenchmarkKernel(b *testing.B) {
	for _, v := range iptables.Variants() {
		b.Run(string(v), func(b *testing.B) {
			inNamespace(b)
			o := kernel.Options{IPTablesVariant: string(v), StateDir: b.TempDir()}
			full := cluster(10000, 5)
			b.Run("load-10000x5", func(b *testing.B) {
				for b.Loop() {
					apply(b, newPlane(b, o), full, false)
					b.StopTimer()
					if err := newPlane(b, o).Remove(context.Background()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
			p := newPlane(b, o)
			apply(b, p, full, false)
			b.Run("adopt-10000x5", func(b *testing.B) {
				for b.Loop() {
					apply(b, newPlane(b, o), full, false)
				}
			})
			b.Run("endpoint-change", func(b *testing.B) {
				i := 0
				for b.Loop() {
					apply(b, p, withFewerBackends(full, i%10000), false)
					i++
				}
			})
		})
	}
}

// BenchmarkPlan is the part of a change that is this program's own.
func BenchmarkPlan(b *testing.B) {
	full := cluster(10000, 5)
	s := newState(iptables.IPv4, defaultMark, full.Settings)
	b.Run("load-10000x5", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s = newState(iptables.IPv4, defaultMark, full.Settings)
			s.load(full)
		}
	})
	table := full
	b.Run("endpoint-change", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			next := withFewerBackends(full, i%10000)
			p := s.change(next, next.Since(table))
			p.inputs(iptables.NFT)
			table = next
			i++
		}
	})
}
