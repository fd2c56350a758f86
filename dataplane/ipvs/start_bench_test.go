package ipvs

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	mobyipvs "github.com/moby/ipvs"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/internal/netns"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/vm"
)

// BenchmarkKernelStart puts Services with three endpoints each into a kernel that
// has none, and BenchmarkKernelChange replaces an endpoint of one. They take a
// kernel with IP_VS, such as the virtual machine's; there, by counts of
// instructions that no other work disturbs:
//
//	go test -c -o ipvs.test ./dataplane/ipvs
//	FAIRWAY_VM_ACCEL=icount go run ./test/invm -modules ip_vs,ip_vs_rr,dummy ipvs.test -test.run xxx -test.bench Kernel -test.benchtime 1x
func BenchmarkKernelStart(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		want := manyServices(n)
		for b.Loop() {
			b.StopTimer()
			p, count := planeOfKernel(b)
			b.StartTimer()
			if _, err := p.Apply(b.Context(), want, kernel.VerifyNothing); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(count.messages), "ipvs-messages")
			b.ReportMetric(float64(p.sets.Messages), "ipset-messages")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/Service")
			if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// BenchmarkKernelChange: see BenchmarkKernelStart.
func BenchmarkKernelChange(b *testing.B) {
	forSizes(b, func(b *testing.B, n int) {
		table := manyServices(n)
		p, count := planeOfKernel(b)
		if _, err := p.Apply(b.Context(), table, kernel.VerifyNothing); err != nil {
			b.Fatal(err)
		}
		ipvsBefore, setsBefore := count.messages, p.sets.Messages
		const times = 50
		fresh := 1 << 20
		for b.Loop() {
			for i := range times {
				pool := *table.Pool(poolNumber(i * n / times))
				fresh++
				pool.Backends = append(pool.Backends[1:len(pool.Backends):len(pool.Backends)], backendNumber(fresh))
				edit := table.Edit()
				edit.SetPool(&pool)
				table = edit.Table()
				if _, err := p.Apply(b.Context(), table, kernel.VerifyNothing); err != nil {
					b.Fatal(err)
				}
			}
		}
		per := float64(times * b.N)
		b.ReportMetric(float64(b.Elapsed().Microseconds())/per, "µs/change")
		b.ReportMetric(float64(count.messages-ipvsBefore)/per, "ipvs-messages/change")
		b.ReportMetric(float64(p.sets.Messages-setsBefore)/per, "ipset-messages/change")
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			b.Fatal(err)
		}
	})
}

func needsIPVS(b *testing.B) {
	has, err := vm.Has("ip_vs")
	if err != nil {
		b.Fatal(err)
	}
	if !has {
		b.Skip("NOT MEASURED: this kernel lacks ip_vs")
	}
}

// forSizes runs a benchmark on a thread in a network namespace of its own.
func forSizes(b *testing.B, run func(b *testing.B, n int)) {
	needsIPVS(b)
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns, err := netns.Anonymous()
			if err != nil {
				b.Fatal(err)
			}
			if err := ns.Do(func() error { runtime.LockOSThread(); defer runtime.UnlockOSThread(); run(b, n); return nil }); err != nil {
				b.Fatal(err)
			}
			if err := ns.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// counting counts messages to IPVS.
type counting struct {
	lvs.Balancer
	messages int
}

func (c *counting) Do(commands []lvs.ServerCommand) (map[int]error, error) {
	c.messages += len(commands)
	return c.Balancer.Do(commands)
}

func (c *counting) NewService(s *mobyipvs.Service) error {
	c.messages++
	return c.Balancer.NewService(s)
}

func (c *counting) UpdateService(s *mobyipvs.Service) error {
	c.messages++
	return c.Balancer.UpdateService(s)
}

func (c *counting) NewDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	c.messages++
	return c.Balancer.NewDestination(s, d)
}

func (c *counting) UpdateDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	c.messages++
	return c.Balancer.UpdateDestination(s, d)
}

func (c *counting) DelDestination(s *mobyipvs.Service, d *mobyipvs.Destination) error {
	c.messages++
	return c.Balancer.DelDestination(s, d)
}

func (c *counting) GetDestinations(s *mobyipvs.Service) ([]*mobyipvs.Destination, error) {
	c.messages++
	return c.Balancer.GetDestinations(s)
}

func planeOfKernel(b *testing.B) (*Plane, *counting) {
	ip(b, "link set lo up", "address replace 192.168.9.1/32 dev lo", "route replace default dev lo src 192.168.9.1")
	real, err := lvs.Open()
	if err != nil {
		b.Fatal(err)
	}
	count := &counting{Balancer: real}
	p, err := newPlane(kernel.Options{StateDir: b.TempDir()}, count)
	if err != nil {
		b.Fatal(err)
	}
	p.background = func(func()) {}
	return p, count
}

func poolNumber(n int) model.PoolID {
	return model.PoolID{Name: fmt.Sprintf("ns/svc%d:p", n), Proto: model.TCP}
}

func backendNumber(n int) model.Backend {
	at := key(fmt.Sprintf("10.%d.%d.%d:8080", 128+n>>16, n>>8&255, n&255), model.TCP)
	return model.Backend{Addr: at.Addr, Port: at.Port, Weight: 1}
}

// manyServices have a cluster IP and three endpoints each.
func manyServices(n int) *model.Table {
	edit := model.NewTable().Edit()
	edit.SetSettings(settings())
	for i := range n {
		p := &model.Pool{ID: poolNumber(i), Orphans: model.OrphansReset}
		for e := range 3 {
			p.Backends = append(p.Backends, backendNumber(3*i+e))
		}
		edit.SetPool(p)
		r := model.Route{Pool: p.ID}
		edit.SetFrontend(&model.Frontend{Key: key(fmt.Sprintf("10.96.%d.%d:80", i/250, i%250+1), model.TCP), Name: p.ID.Name, Routes: [model.NumOrigins]model.Route{r, r, r}})
	}
	return edit.Table()
}
