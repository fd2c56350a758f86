package maps

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairway-net/fairway/dataplane/ebpf/pins"
	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/model"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package maps -no-global-types -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu" decide ../bpf/decide_test.c

// decider runs decide in the kernel, on tables that nobody else sees.
type decider struct {
	t     *testing.T
	store *Store
	state *program.State
	table *model.Table
	ask   *ebpf.Program
	again *ebpf.Program
	close *ebpf.Program
}

func newDecider(t *testing.T) *decider {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := loadDecide()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	s := &Store{Maps: c.Maps, Tables: map[program.TableName]*Table{}}
	if err := errors.Join(s.openTables(spec.Maps), s.openResizable(spec.Maps)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := s.counts.close(); err != nil {
			t.Error(err)
		}
	})
	s.digests.learn(newDigests())
	return &decider{t: t, store: s, state: program.NewState(""), table: model.NewTable(), ask: c.Programs["ask"], again: c.Programs["again"], close: c.Programs["done"]}
}

// apply brings the tables to want.
func (d *decider) apply(want *model.Table) {
	d.t.Helper()
	if err := want.Validate(); err != nil {
		d.t.Fatal(err)
	}
	plan, err := d.state.Change(d.table, want, want.Since(d.table))
	if err != nil {
		d.t.Fatal(err)
	}
	if err := errors.Join(d.store.Write(plan, d.state), d.store.SetRanges(want.Settings.Reserved)); err != nil {
		d.t.Fatal(err)
	}
	d.table = want
}

// answer is struct reply of decide_test.c.
type answer struct {
	action     model.Action
	reason     model.Reason
	masquerade bool
	direct     bool
	pool       uint32
	backend    uint32
	to         netip.AddrPort
}

func (d *decider) decide(p model.Packet) answer {
	d.t.Helper()
	q := program.Packer(nil).Addr(p.Src).Addr(p.Dst).Port(p.SrcPort).Port(p.DstPort)
	q = append(q, byte(p.Proto), 0, 0, 0).U32(uint32(d.table.Origin(p)))
	q = append(q, make([]byte, 64)...)
	out := make([]byte, len(q)+64)
	code, err := d.ask.Run(&ebpf.RunOptions{Data: q, DataOut: out})
	if err != nil || code != 0 {
		d.t.Fatalf("decide: %d, %v", code, err)
	}
	r := program.Unpacker(out)
	return answer{model.Action(r.U32()), model.Reason(r.U32()), r.U32() != 0, r.U32() != 0, r.U32(), r.U32(), r.Endpoint()}
}

// resume are those that are asked about a packet from the middle of a connection.
func (d *decider) resume(p model.Packet) (list []netip.AddrPort) {
	d.t.Helper()
	q := program.Packer(nil).Addr(p.Src).Addr(p.Dst).Port(p.SrcPort).Port(p.DstPort)
	q = append(q, byte(p.Proto), 0, 0, 0).U32(uint32(d.table.Origin(p)))
	q = append(q, make([]byte, 64)...)
	out := make([]byte, len(q)+64)
	code, err := d.again.Run(&ebpf.RunOptions{Data: q, DataOut: out})
	if err != nil || code != 0 {
		d.t.Fatalf("resume: %d, %v", code, err)
	}
	r := program.Unpacker(out)
	for range 2 {
		found, to := r.U32() != 0, r.Endpoint()
		if r = r[2:]; found {
			list = append(list, to)
		}
	}
	return list
}

// done says that a connection to a backend has ended.
func (d *decider) done(backend uint32) {
	d.t.Helper()
	packet := binary.NativeEndian.AppendUint32(nil, backend)
	if code, err := d.close.Run(&ebpf.RunOptions{Data: append(packet, make([]byte, 60)...)}); err != nil || code != 0 {
		d.t.Fatalf("done: %d, %v", code, err)
	}
}

// TestDecide holds the C against the specification: random tables, each made
// from the last one, and random packets.
func TestDecide(t *testing.T) {
	d := newDecider(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		d.apply(randomTable(r, d.table))
		for range 200 {
			p := randomPacket(r)
			v, got := d.table.Decide(p), d.decide(p)
			if got.action != v.Action || got.reason != v.Reason {
				t.Fatalf("%+v: %v because %v, expected %v because %v in\n%s", p, got.action, got.reason, v.Action, v.Reason, d.table)
			}
			if v.Action != model.Forward {
				continue
			}
			i := slices.IndexFunc(v.Backends(), func(b model.Backend) bool { return b.AddrPort() == got.to })
			if i < 0 {
				t.Fatalf("%+v: to %v, expected one of %v", p, got.to, v.Backends())
			}
			to := v.Backends()[i]
			if got.masquerade != v.Masquerades(to) || got.direct != (v.Direct && to.Addr != p.Src) {
				t.Fatalf("%+v: masqueraded %v, direct %v, in\n%s", p, got.masquerade, got.direct, d.table)
			}
		}
	}
	d.compare(t)
}

// TestResume holds the C against the specification: who is asked about a packet from the
// middle of a connection.
func TestResume(t *testing.T) {
	d := newDecider(t)
	r := rand.New(rand.NewPCG(3, 4))
	asked := map[int]int{}
	for range 60 {
		d.apply(randomTable(r, d.table))
		for range 200 {
			p := randomPacket(r)
			p.SrcPort = uint16(1 + r.IntN(65535))
			if p.Proto != model.TCP {
				continue
			}
			var want []netip.AddrPort
			for _, b := range d.table.Resume(p) {
				want = append(want, b.AddrPort())
			}
			if got := d.resume(p); !slices.Equal(got, want) {
				t.Fatalf("%+v: %v, expected %v in\n%s", p, got, want, d.table)
			}
			asked[len(want)]++
		}
	}
	if asked[1] == 0 || asked[2] == 0 {
		t.Errorf("so many were asked: %v", asked)
	}
	d.compare(t)
}

// compare checks that changes have led to where a table read at once leads.
func (d *decider) compare(t *testing.T) {
	t.Helper()
	have, err := d.store.Read()
	if err != nil {
		t.Fatal(err)
	}
	st, err := program.Adopt(have, d.table, "")
	if err != nil {
		t.Fatal(err)
	}
	for difference := range have.Differences(st.All(d.table)) {
		t.Errorf("adopted tables differ: %+v", difference)
	}
	if parts := d.drift(); len(parts) > 0 {
		t.Errorf("digests differ: %q", parts)
	}
}

// drift are the parts of tables that hold something else than was written.
func (d *decider) drift() []string {
	d.t.Helper()
	parts, known, err := d.store.Drift(d.t.Context())
	if err != nil || !known {
		d.t.Fatalf("what was written is known: %t, %v", known, err)
	}
	return parts
}

// TestCounters: connections and rejects are counted where they belong.
func TestCounters(t *testing.T) {
	d := scheduled(t, model.RoundRobin, 0, 1, 1)
	d.spread(6)
	e := d.table.Edit()
	f := *d.table.Frontend(vip)
	f.Sources = []netip.Prefix{}
	e.SetFrontend(&f)
	d.apply(e.Table())
	for range 3 {
		d.decide(from(1))
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	r := &countReader{outer: pins.InnerOf(d.store.Maps["counts"], d.store.Dir, "counts"), cpus: cpus, chunks: map[uint32][]counters{}}
	for id, want := range map[uint32]counters{
		d.state.FrontendID(vip): {Connections: 6, NotAllowed: 3},
		d.state.BackendID(f.Routes[0].Pool, netip.AddrPortFrom(backendAddr(1), 8080)): {Connections: 3},
	} {
		if got, err := r.read(id); err != nil || got != want {
			t.Errorf("counted %+v, %v, expected %+v", got, err, want)
		}
	}
}
