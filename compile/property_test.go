package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairway-net/fairway/model"
)

// world is what the API holds, beside the compiler that was told of it.
type world struct {
	random
	t        *testing.T
	config   Config
	node     Node
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	compiler *Compiler
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		random: random{rand.New(rand.NewPCG(seed, 3))}, t: t,
		config: testConfig, node: testNode,
		services: map[string]*corev1.Service{}, slices: map[string]*discoveryv1.EndpointSlice{},
		compiler: New(testConfig),
	}
	w.compiler.SetNode(testNode)
	return w
}

const worldServices, worldSlices = 6, 12

// event changes one thing and tells the compiler.
func (w *world) event() {
	switch n := w.IntN(100); {
	case n < 35:
		s := w.service(w.IntN(worldServices))
		before := s.DeepCopy()
		w.compiler.SetService(s)
		if !reflect.DeepEqual(before, s) {
			w.t.Error("SetService changed its argument")
		}
		w.services[s.Name] = s
	case n < 45:
		name := fmt.Sprintf("s%d", w.IntN(worldServices))
		w.compiler.DeleteService("ns", name)
		delete(w.services, name)
	case n < 80:
		s := w.slice(w.IntN(worldSlices), worldServices)
		before := s.DeepCopy()
		w.compiler.SetSlice(s)
		if !reflect.DeepEqual(before, s) {
			w.t.Error("SetSlice changed its argument")
		}
		w.slices[s.Name] = s
	case n < 94:
		name := fmt.Sprintf("slice-%d", w.IntN(worldSlices))
		w.compiler.DeleteSlice("ns", name)
		delete(w.slices, name)
	case n < 97:
		w.node = w.random.node()
		w.compiler.SetNode(w.node)
	default:
		w.config = w.random.config()
		w.compiler.SetConfig(w.config)
	}
}

// scratch compiles the same from scratch, told in random order.
func (w *world) scratch() *Compiler {
	c := New(w.config)
	var events []func()
	for _, s := range w.services {
		events = append(events, func() { c.SetService(s) })
	}
	for _, s := range w.slices {
		events = append(events, func() { c.SetSlice(s) })
	}
	events = append(events, func() { c.SetNode(w.node) })
	w.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	for i, event := range events {
		event()
		if i%3 == 0 {
			c.Table()
		}
	}
	c.Table()
	return c
}

// TestIncrementalIsFromScratch: after any events, the table, the problems and
// the health checks are what they would be had the objects always been so.
func TestIncrementalIsFromScratch(t *testing.T) {
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		before := w.compiler.Table()
		known := map[string]HealthCheck{}
		for i := range 60 {
			for range 1 + w.IntN(4) {
				w.event()
			}
			table := w.compiler.Table()
			fresh := w.scratch()
			if got, want := table.String(), fresh.Table().String(); got != want {
				t.Fatalf("seed %d, step %d: got\n%s\nwant\n%s", seed, i, got, want)
			}
			if got, want := w.compiler.Problems(), fresh.Problems(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: problems\n%v\nwant\n%v", seed, i, got, want)
			}
			for _, h := range w.compiler.HealthChanges() {
				known[h.Service.Name] = h
				if h.Port == 0 {
					delete(known, h.Service.Name)
				}
			}
			if want := fresh.HealthChecks(); !slices.Equal(w.compiler.HealthChecks(), want) || len(known) != len(want) {
				t.Fatalf("seed %d, step %d: health %v, told %v, want %v", seed, i, w.compiler.HealthChecks(), known, want)
			}
			w.check(table)
			w.checkReasons(w.compiler, table)
			checkShared(t, before, table)
			if w.compiler.Table() != table {
				t.Fatalf("seed %d, step %d: another table without a change", seed, i)
			}
			before = table
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, i)
			}
		}
	}
}

// checkShared: what says the same in both tables is the same value.
func checkShared(t *testing.T, before, after *model.Table) {
	t.Helper()
	for f := range after.Frontends() {
		if old := before.Frontend(f.Key); old != nil && old != f && old.Equal(f) {
			t.Errorf("frontend %s was made anew", f.Key)
		}
	}
	for p := range after.Pools() {
		if old := before.Pool(p.ID); old != nil && old != p && old.Equal(p) {
			t.Errorf("pool %s was made anew", p.ID)
		}
	}
	if before.Settings != after.Settings && before.Settings.Equal(after.Settings) {
		t.Error("settings were made anew")
	}
}

// named is an endpoint as slices name it.
type named struct {
	service string // "ns/s1:port"
	proto   model.Protocol
	at      netip.AddrPort
	local   bool
}

// check holds a table against what slices name: no backend comes from
// elsewhere, and those that take connections are the right ones.
func (w *world) check(table *model.Table) {
	w.t.Helper()
	if err := table.Validate(); err != nil {
		w.t.Error(err)
	}
	all := w.named()
	for p := range table.Pools() {
		for _, b := range slices.Concat(p.Backends, p.Draining) {
			n := named{p.ID.Name, p.ID.Proto, b.AddrPort(), b.Local}
			if !all[n] {
				w.t.Errorf("pool %s: no slice names %s (local %t)", p.ID, b.AddrPort(), b.Local)
			}
		}
	}
	w.checkChoice(table)
}

func (w *world) named() map[named]bool {
	all := map[named]bool{}
	local := map[named]bool{}
	for _, s := range w.slices {
		for _, p := range s.Ports {
			if p.Port == nil || s.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			title := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
			if *p.Name != "" {
				title += ":" + *p.Name
			}
			proto, _ := protocol(*p.Protocol)
			for _, e := range s.Endpoints {
				a, err := netip.ParseAddr(e.Addresses[0])
				if err != nil {
					continue
				}
				n := named{service: title, proto: proto, at: netip.AddrPortFrom(a, uint16(*p.Port))}
				all[n] = true
				if e.NodeName != nil && *e.NodeName == w.node.Name {
					local[n] = true
				}
			}
		}
	}
	for n := range local {
		delete(all, n)
		n.local = true
		all[n] = true
	}
	return all
}
