package ipvs

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	mobyipvs "github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/internal/lvs"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/vm"
)

// TestCountersByServicePort: what virtual servers have counted is told by
// Service port, those of marks with the rest.
func TestCountersByServicePort(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		p.open = func() (lvs.Balancer, error) { return f, nil }
		b := edit(t, model.NewTable())
		b.edit.SetSettings(settings())
		all := b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p"}}, "10.244.0.2:80", "10.244.0.3:80")
		here := b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p", Local: true}}, "10.244.0.2:80")
		port := &model.Frontend{Key: key("192.168.9.1:30080", model.TCP), Name: "a/web:p", FrontendType: model.NodePort}
		port.Routes = [model.NumOrigins]model.Route{{Pool: all}, {Pool: all, Masquerade: true}, {Pool: here}}
		b.edit.SetFrontend(port)
		b.frontend("10.96.0.10:80", model.ClusterIP, all, false)
		table := b.table()
		apply(t, p, table, false)
		for _, s := range f.servers {
			s.service.Stats = mobyipvs.SvcStats{Connections: 3, BytesIn: 100, BytesOut: 1000}
		}
		n := uint64(len(f.servers))
		if n < 3 {
			t.Fatalf("%d virtual servers, want one of each frontend and of marks", n)
		}
		counts, err := p.frontendCounts(t.Context())
		if err != nil || len(counts) != 1 || counts[0].Connections != 3*n || counts[0].In != 100*n || counts[0].Out != 1000*n {
			t.Errorf("%d servers: counted %+v, %v", n, counts, err)
		}
		packets, err := p.packetCounts(t.Context())
		if err != nil || len(packets.Rules) != 6 || packets.Rules[0].Total == 0 {
			t.Errorf("packets %+v, %v", packets, err)
		}
	})
}

// TestRefusalsAreCounted: a Service without endpoints counts who is refused, from
// when it has none. (The sets and rules are the kernel's; IPVS isn't asked.)
func TestRefusalsAreCounted(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for _, c := range []string{"link set lo up", "link add up0 type bridge", "link set up0 up", "address add 192.168.9.1/24 dev up0"} {
			command(t, "", "ip", strings.Fields(c)...)
		}
		f := newFakeIPVS()
		p := newTestPlane(t, f)
		p.open = func() (lvs.Balancer, error) { return f, nil }
		b := edit(t, model.NewTable())
		b.edit.SetSettings(settings())
		web := b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p"}}, "10.244.0.2:8080")
		b.frontend("10.96.0.10:80", model.ClusterIP, web, false)
		b.frontend("10.96.0.11:80", model.ClusterIP, b.pool(model.Pool{ID: model.PoolID{Name: "a/other:p"}}), false)
		apply(t, p, b.table(), false)
		b = edit(t, b.table())
		b.edit.SetPool(&model.Pool{ID: model.PoolID{Name: "a/web:p", Proto: model.TCP}})
		apply(t, p, b.table(), false)
		for n := range 3 {
			c, err := net.DialTimeout("tcp", "10.96.0.10:80", 30*time.Second)
			if err == nil {
				c.Close() //nolint:errcheck // it should not be there
				t.Fatal("a Service without endpoints was reached")
			}
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("connection %d to a Service without endpoints: %v", n, err)
			}
		}
		counts, err := p.frontendCounts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refused := map[model.Key]uint64{}
		for _, c := range counts {
			refused[c.Frontend] = c.Refused
		}
		if refused[key("10.96.0.10:80", model.TCP)] != 3 || refused[key("10.96.0.11:80", model.TCP)] != 0 {
			t.Errorf("3 refused at the first: counted %+v", counts)
		}
	})
}

// TestRealKernelCounts has the kernel count this node's own connections, and
// prepares what takes all privileges.
func TestRealKernelCounts(t *testing.T) {
	vm.With(t, func(t *testing.T) {
		inNamespace(t, func(t *testing.T) {
			node(t)
			command(t, "", "ip", "address", "add", "10.244.0.2/32", "dev", "up0")
			listener, err := net.Listen("tcp", "10.244.0.2:8080")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close() //nolint:errcheck // ends with the test
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return // closed
					}
					io.WriteString(c, "hello") //nolint:errcheck // the client looks at what it got
					c.Close()                  //nolint:errcheck
				}
			}()
			options := kernel.Options{StateDir: t.TempDir()}
			first, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Prepare(context.Background(), kernel.LessPrivilege); err != nil {
				t.Fatal(err)
			}
			for _, s := range append(lvs.Sysctls(), lvs.QuietSysctls...) {
				if now, err := lvs.ReadSysctl(s.Path); err != nil || now != s.Value {
					t.Errorf("%s is %q after Init, want %s: %v", s.Path, now, s.Value, err)
				}
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			p, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			b := edit(t, model.NewTable())
			b.edit.SetSettings(settings())
			b.frontend("10.96.0.10:80", model.ClusterIP, b.pool(model.Pool{ID: model.PoolID{Name: "a/web:p"}}, "10.244.0.2:8080"), false)
			apply(t, p, b.table(), false)
			for range 3 {
				c, err := net.DialTimeout("tcp", "10.96.0.10:80", 30*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(c); err != nil {
					t.Fatal(err)
				}
				c.Close() //nolint:errcheck // nothing follows
			}
			var counts []kernel.Count
			for range wait.Tries(30 * time.Second) {
				if counts, err = p.frontendCounts(t.Context()); err != nil || len(counts) == 1 && counts[0].Connections == 3 {
					break // the kernel's estimator adds up every other second
				}
			}
			if err != nil || len(counts) != 1 || counts[0].Connections != 3 || counts[0].In == 0 || counts[0].Out == 0 {
				t.Errorf("counted %+v, %v", counts, err)
			}
			if _, err := p.packetCounts(t.Context()); err != nil {
				t.Error(err)
			}
			if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
				t.Fatal(err)
			}
			if now, err := lvs.ReadSysctl("net/ipv4/conf/all/arp_ignore"); err != nil || now != "0" {
				t.Errorf("arp_ignore is %q in the end: %v", now, err)
			}
		})
	}, "ip_vs", "dummy")
}
