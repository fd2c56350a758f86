package iptables

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/internal/iptables"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

func TestNames(t *testing.T) {
	for want, got := range map[string]string{
		"KUBE-SVC-NPX46M4PTMTKRN6Y": poolName(model.PoolID{Name: "default/kubernetes:https", Proto: model.TCP}),
		"KUBE-SVC-TCOU7JCQXEZGVUNU": poolName(model.PoolID{Name: "kube-system/kube-dns:dns", Proto: model.UDP}),
		"KUBE-SVC-ERIFXISQEP7F7OF4": poolName(model.PoolID{Name: "kube-system/kube-dns:dns-tcp", Proto: model.TCP}),
		"KUBE-SVC-JD5MR3NA4I4DYORP": poolName(model.PoolID{Name: "kube-system/kube-dns:metrics", Proto: model.TCP}),
		"KUBE-SVL-NPX46M4PTMTKRN6Y": poolName(model.PoolID{Name: "default/kubernetes:https", Proto: model.TCP, Local: true}),
		// sha256("default/kubernetes:httpstcp10.0.0.1:6443")
		"KUBE-SEP-" + hash16("default/kubernetes:httpstcp10.0.0.1:6443"): backendName(
			model.PoolID{Name: "default/kubernetes:https", Proto: model.TCP}, model.Backend{Addr: netip.MustParseAddr("10.0.0.1"), Port: 6443}),
		`"default/web:http cluster IP"`: quote("default/web:http cluster IP"),
		"word-1":                        quote("word-1"),
		`"a_ b__c"`:                     quote("a\" b\n\\c"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, r := range []struct{ rule, target string }{
		{`-m comment --comment "x -j Y" -j KUBE-A`, "KUBE-A"},
		{`-p tcp -j REJECT --reject-with tcp-reset`, "REJECT"},
		{`-g KUBE-B`, "KUBE-B"},
		{`-p tcp`, ""},
	} {
		if got := target(r.rule); got != r.target {
			t.Errorf("target of %q is %q, want %q", r.rule, got, r.target)
		}
	}
}

// mirror is a kernel in miniature: it holds what plans put into it.
type mirror map[chainID][]string

// apply puts a delta into force and checks what iptables-restore would refuse:
// jumps to chains that aren't there, deletion of chains that aren't there or
// that rules lead to.
func (m mirror) apply(d delta) error {
	for id, c := range d {
		if !c.delete {
			m[id] = c.rules
		}
	}
	for id, c := range d {
		if c.delete {
			if _, there := m[id]; !there {
				return fmt.Errorf("chain %s is deleted but not there", id)
			}
			delete(m, id)
		}
	}
	for id, rules := range m {
		for _, r := range rules {
			to := target(r)
			if _, there := m[chainID{id.table, to}]; !there && strings.HasPrefix(to, "KUBE-") {
				return fmt.Errorf("chain %s leads to %s, which isn't there: %s", id, to, r)
			}
		}
	}
	return nil
}

func (m mirror) run(p *plan) error {
	for i, d := range []delta{p.refusals, p.nat, p.rest} {
		if err := m.apply(d); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func diff(t *testing.T, got, want mirror) {
	t.Helper()
	for id := range want {
		if !slices.Equal(got[id], want[id]) {
			t.Errorf("%s is\n\t%s\nwant\n\t%s", id, strings.Join(got[id], "\n\t"), strings.Join(want[id], "\n\t"))
		}
	}
	for id := range got {
		if _, ok := want[id]; !ok {
			t.Errorf("%s should be gone", id)
		}
	}
}

// TestChangesLeadWhereRenderingDoes makes random changes one after the other
// and compares with what a plane that starts afresh would install.
func TestChangesLeadWhereRenderingDoes(t *testing.T) {
	for seed := range uint64(16) {
		r := rand.New(rand.NewPCG(seed, 4))
		services := pick(r, 2, 5, 20, 120)
		f := pick(r, iptables.IPv4, iptables.IPv6)
		table := randomEdit(r, model.NewTable(), services, r.IntN(400))
		e := table.Edit()
		e.SetSettings(randomSettings(r))
		table = e.Table()
		s := newState(f, defaultMark, table.Settings)
		m := mirror{}
		if err := m.run(s.replace(table, nil)); err != nil {
			t.Fatalf("seed %d: first load: %v", seed, err)
		}
		for step := range 15 {
			next := randomEdit(r, table, services, pick(r, 1, 1, 3, 30))
			changes := next.Since(table)
			var p *plan
			if changes.Settings {
				old := s.all()
				s = newState(f, defaultMark, next.Settings)
				p = s.replace(next, old)
			} else {
				p = s.change(next, changes)
			}
			if err := m.run(p); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			fresh := newState(f, defaultMark, next.Settings)
			want := mirror{}
			if err := want.run(fresh.replace(next, nil)); err != nil {
				t.Fatalf("seed %d, step %d: fresh: %v", seed, step, err)
			}
			diff(t, m, want)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
			if !maps.Equal(s.all(), fresh.all()) {
				t.Fatalf("seed %d, step %d: fingerprints differ", seed, step)
			}
			table = next
		}
	}
}

func TestRenderIsSortedAndUnique(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	objects, err := Render(randomEdit(r, model.NewTable(), 20, 300), kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(objects); i++ {
		if a, b := objects[i-1], objects[i]; a.Kind > b.Kind || a.Kind == b.Kind && a.Name >= b.Name {
			t.Errorf("%s %s comes before %s %s", a.Kind, a.Name, b.Kind, b.Name)
		}
	}
	for _, o := range objects {
		if name := o.Name[strings.LastIndexByte(o.Name, ' ')+1:]; len(name) > 28 {
			t.Errorf("name %s is longer than 28 bytes", name)
		}
	}
}

// TestManyBackendsHaveNoComments: rules of which there is one for each backend, and
// none else. Changes leave it as it is until the next comparison.
func TestManyBackendsHaveNoComments(t *testing.T) {
	const each = 5
	comments := func(m mirror) (backends, others int) {
		for id, rules := range m {
			for _, r := range rules {
				switch {
				case !strings.Contains(r, "--comment"):
				case strings.HasPrefix(id.name, backendChain), strings.Contains(r, "-> "):
					backends++
				default:
					others++
				}
			}
		}
		return backends, others
	}
	for _, c := range []struct {
		services int
		there    bool
	}{{manyBackends / each, true}, {manyBackends/each + 1, false}} {
		table := cluster(c.services, each)
		s := newState(iptables.IPv4, defaultMark, table.Settings)
		s.load(table)
		m := mirror{}
		if err := m.apply(s.step()); err != nil {
			t.Fatal(err)
		}
		backends, others := comments(m)
		if backends > 0 != c.there || others < c.services {
			t.Errorf("%d backends: %d rules of backends have comments, and %d others", c.services*each, backends, others)
		}
		less := withFewerBackends(table, 0)
		if p := s.change(less, less.Since(table)); p.lines() > 100 {
			t.Errorf("%d backends: one less writes %d lines", c.services*each, p.lines())
		}
	}
}
