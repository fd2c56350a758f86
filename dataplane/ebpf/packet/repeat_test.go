package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/dataplane/ebpf/maps"
	"github.com/fairway-net/fairway/internal/bpffs"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package packet -no-global-types -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I../bpf" repeat bpf/repeat_test.c

// template is struct template of repeat_test.c.
type template struct {
	Bytes [96]byte
	Size  uint32
	Port  uint32
}

const ethernetHeader = 14

// templateOf is a packet, or, with another client each time, many.
func templateOf(p packet, others bool) template {
	raw := p.bytes()
	t := template{Size: uint32(len(raw))}
	copy(t.Bytes[:], raw)
	if others {
		t.Port = ethernetHeader + 20
		if p.src.Addr().Is6() {
			t.Port = ethernetHeader + 40
		}
	}
	return t
}

// newFlows is how many connections a benchmark makes at most: the table has room for them.
const newFlows = 4096

// newRepeater is a bench whose programs get one packet many times.
func newRepeater(t testing.TB, name string, masquerade bool, of template) *bench {
	t.Helper()
	spec, err := loadRepeat()
	must(t, err)
	must(t, spec.Variables["template"].Set(of))
	b := &bench{dir: filepath.Join(bpffs.Dir, "fairway", fmt.Sprintf("test-%d-%s", os.Getpid(), name))}
	b.load(t, spec)
	b.program(t, benchTable(masquerade))
	return b
}

// BenchmarkDriver measures the program at drivers in the same way. It does for a packet what
// the programs at both interfaces do, and the route.
func BenchmarkDriver(b *testing.B) {
	for i := range served {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			first := packet{proto: proto, flags: syn, src: clients[i], dst: served[i]}
			later := first
			later.flags = ack
			miss := later
			miss.dst = netip.AddrPortFrom(nodes[i], 22)
			for what, p := range map[string]packet{"established": later, "miss": miss} {
				b.Run(fmt.Sprintf("IPv%d/%s/%s", 4+2*i, map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}[proto], what), func(b *testing.B) {
					d := newDriver(b, newRepeater(b, what, true, templateOf(p, false)))
					d.through(b, first.bytes())
					must(b, d.node.Do(func() error {
						each := d.taken(b, "drives", p, b.N) - d.taken(b, "no_driver", p, b.N)
						b.ReportMetric(float64(each)/float64(b.N), "ns/packet")
						return nil
					}))
				})
			}
		}
	}
}

// nsPerPacket is what a program takes for a packet, without what it takes to restore that.
func (b *bench) nsPerPacket(t testing.TB, program string, of packet, times int) float64 {
	t.Helper()
	return float64(b.taken(t, program, of, times)-b.taken(t, "nothing", of, times)) / float64(times)
}

func (b *bench) taken(t testing.TB, program string, of packet, times int) time.Duration {
	t.Helper()
	_, each, err := b.programs[program].Benchmark(of.bytes(), times, nil)
	must(t, err)
	return each * time.Duration(times)
}

// BenchmarkPrograms measures the programs in ns a packet: at the interface where a packet
// comes in, and, for masqueraded connections, there and at the one where it leaves. A miss is
// a packet that isn't for Services.
func BenchmarkPrograms(b *testing.B) {
	for i := range served {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			first := packet{proto: proto, flags: syn, src: clients[i], dst: served[i]}
			later, miss := first, first
			later.flags, miss.flags = ack, ack
			miss.dst = netip.AddrPortFrom(nodes[i], 22)
			for _, at := range []struct {
				program    string
				masquerade bool
			}{{"comes", false}, {"passes", true}} {
				name := fmt.Sprintf("IPv%d/%s/%s/", 4+2*i, map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP"}[proto], at.program)
				for what, p := range map[string]packet{"established": later, "miss": miss} {
					b.Run(name+what, func(b *testing.B) {
						r := newRepeater(b, what, at.masquerade, templateOf(p, false))
						r.run(b, "ingress", first)
						b.ReportMetric(r.nsPerPacket(b, at.program, p, b.N), "ns/packet")
					})
				}
				b.Run(name+"new", func(b *testing.B) {
					flows := min(b.N, newFlows)
					r := newRepeater(b, "new", at.masquerade, templateOf(first, true))
					b.ReportMetric(r.nsPerPacket(b, at.program, first, flows), "ns/packet")
				})
			}
		}
	}
}

// TestRepeat: what the benchmark gives the programs is what it says, each time.
func TestRepeat(t *testing.T) {
	for i := range served {
		first := packet{proto: unix.IPPROTO_UDP, src: clients[i], dst: served[i]}
		r := newRepeater(t, fmt.Sprint("others", i), false, templateOf(first, true))
		_, out := r.runBytes(t, "nothing", first.bytes())
		if port := binary.NativeEndian.Uint16(out[templateOf(first, true).Port:]); port != 1 {
			t.Errorf("the first client's port is %d", port)
		}
		r.taken(t, "comes", first, 10)
		n := 0
		must(t, r.conns.each(func(key *tcTuple, c *tcConn) { n++ }))
		if n != 20 {
			t.Errorf("10 clients' packets made %d entries, expected 20", n)
		}
		r = newRepeater(t, fmt.Sprint("same", i), false, templateOf(first, false))
		r.taken(t, "comes", first, 10)
		counts, err := maps.BackendCounts(t.Context(), r.dir, benchTable(false))
		must(t, err)
		if len(counts) == 0 || counts[0].Packets != 10 || counts[0].Connections != 1 {
			t.Errorf("10 packets of one client were counted as %+v", counts)
		}
	}
}
