package apiserver

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
)

// BenchmarkNoCustomResources reports what it costs a server that could serve custom
// resources that it has none: the memory in use, beside that of one that can't.
func BenchmarkNoCustomResources(b *testing.B) {
	var costs []float64
	for b.Loop() {
		costs = append(costs, idleMemory(b, false)-idleMemory(b, true))
	}
	slices.Sort(costs)
	b.ReportMetric(costs[len(costs)/2], "MB")
	b.ReportMetric(0, "ns/op")
}

// idleMemory is what a server has in use, in MB, that has no definitions.
func idleMemory(b *testing.B, none bool) float64 {
	b.Helper()
	c := testConfig(b)
	c.noCustomResources, c.noDefinitions = none, true
	s, err := Start(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	time.Sleep(10 * time.Second) // schemas are published
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / 1e6
}
