package userspace

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/fairway-net/fairway/model"
)

// BenchmarkListen opens the listeners of so many Services, all on one port. The
// last takes more open files than some machines allow; the virtual machine's
// root may raise its limit:
//
//	go test -c -o userspace.test ./dataplane/userspace
//	go run ./test/invm userspace.test -test.run xxx -test.bench Listen/30000 -test.benchtime 1x
func BenchmarkListen(b *testing.B) {
	for _, n := range []int{1000, 4000, 12000, 30000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			runtime.LockOSThread() // never unlocked: the thread is in a namespace of its own
			ns, err := netns.New()
			if err != nil {
				b.Fatal(err)
			}
			defer func() { discard(ns.Close()) }()
			raiseLimit()
			if most := mostListeners(); n > most {
				b.Skipf("NOT MEASURED: %d listeners, and this process may have %d", n, most)
			}
			at := map[string]*model.Pool{}
			for i := range n {
				a := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
				at[a.String()+":80"] = pool(fmt.Sprintf("service-%d", i), model.TCP, netip.MustParseAddrPort("10.128.0.1:8080"))
			}
			table := tableOf(at)
			for b.Loop() {
				r := newRelay(model.DefaultScheduler)
				if err := r.apply(table.Delta(r.current())); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc+m.StackInuse)/float64(n), "B/listener")
				r.exit()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/listener")
		})
	}
}
