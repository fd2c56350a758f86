package iptables

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
)

// BenchmarkKernel is the full load, reading all of it back, and one endpoint
// change with everything installed. Beside the time that passes it tells the
// CPU time of this program and of the iptables tools.
func BenchmarkKernel(b *testing.B) {
	full := cluster(10000, 5)
	for _, v := range iptables.Variants() {
		o := kernel.Options{IPTablesVariant: string(v), StateDir: b.TempDir()}
		b.Run(string(v)+"/load-10000x5", func(b *testing.B) {
			inNamespace(b)
			measure(b, func() { apply(b, newPlane(b, o), full, false) }, func() {
				if err := newPlane(b, o).Remove(context.Background(), kernel.EndConnections); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(string(v)+"/adopt-10000x5", func(b *testing.B) {
			inNamespace(b)
			apply(b, newPlane(b, o), full, false)
			measure(b, func() { apply(b, newPlane(b, o), full, false) }, func() {})
		})
		b.Run(string(v)+"/endpoint-change", func(b *testing.B) {
			inNamespace(b)
			p, i := newPlane(b, o), 0
			apply(b, p, full, false)
			measure(b, func() { apply(b, p, withFewerBackends(full, i%10000), false); i++ }, func() {})
		})
	}
}

// measure runs what is measured and then, unmeasured, what undoes it.
func measure(b *testing.B, run, undo func()) {
	var own, tools time.Duration
	for b.Loop() {
		ownBefore, toolsBefore := cpuTime(b, unix.RUSAGE_SELF), cpuTime(b, unix.RUSAGE_CHILDREN)
		run()
		own += cpuTime(b, unix.RUSAGE_SELF) - ownBefore
		tools += cpuTime(b, unix.RUSAGE_CHILDREN) - toolsBefore
		b.StopTimer()
		undo()
		b.StartTimer()
	}
	b.ReportMetric(own.Seconds()/float64(b.N), "own-cpu-s/op")
	b.ReportMetric(tools.Seconds()/float64(b.N), "tools-cpu-s/op")
}

func cpuTime(b *testing.B, of int) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(of, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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
