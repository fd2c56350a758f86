package migrate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairway-net/fairway/internal/conntrack"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
)

// node is a kernel with a plane's connections and conntrack's. A source on it is a
// process of the plane, which may fail or be killed at any step; the node stays.
type node struct {
	plane, conntrack map[string]conntrack.Flow
	imported         map[string]bool // by the plane in force
	lost             []string        // gone from the plane while conntrack doesn't have it
	frozen           bool
}

func newNode(flows int) *node {
	n := &node{plane: map[string]conntrack.Flow{}, conntrack: map[string]conntrack.Flow{}, imported: map[string]bool{}}
	for i := range flows {
		at := netip.MustParseAddr("10.244.0.2")
		front, backend := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.244.1.2")
		if i%2 == 1 {
			at, front, backend = netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00:96::1"), netip.MustParseAddr("fd00::3")
		}
		proto := []model.Protocol{model.TCP, model.UDP, model.SCTP}[i%3]
		client := netip.AddrPortFrom(at, uint16(1000+i))
		f := conntrack.Flow{Proto: proto, Client: client, Source: client, Frontend: netip.AddrPortFrom(front, 80), Backend: netip.AddrPortFrom(backend, 8080)}
		n.plane[f.String()] = f
	}
	return n
}

// killed is what a process panics with when it is killed.
type killed string

// process is a source on a node.
type process struct {
	*node
	at   func(step string) error // called at each step; an error is what the step says
	done []string
}

func (p *process) step(name string) error {
	p.done = append(p.done, name)
	if p.at == nil {
		return nil
	}
	return p.at(name)
}

func (p *process) Freeze(context.Context) error {
	if err := p.step("before freeze"); err != nil {
		return err
	}
	p.frozen = true
	return p.step("after freeze")
}

func (p *process) Export(context.Context) (flows []conntrack.Flow, err error) {
	for _, f := range p.plane {
		flows = append(flows, f)
	}
	return flows, p.step("export")
}

func (p *process) Release(context.Context, []conntrack.Flow) error { return p.step("release") }

func (p *process) Thaw(_ context.Context, moved bool, stays []conntrack.Flow) error {
	if err := p.step("before thaw"); err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, f := range stays {
		keep[f.String()] = true
	}
	for name := range p.plane {
		if moved && !keep[name] {
			delete(p.plane, name)
			if _, ok := p.conntrack[name]; !ok {
				p.lost = append(p.lost, name)
			}
		}
	}
	p.frozen = false
	return p.step("after thaw")
}

func (p *process) Leave(context.Context) ([]Source, error) { return []Source{p}, p.step("leave") }

// Import is that of the plane in force.
func (p *process) Import(_ context.Context, flows []conntrack.Flow) error {
	if err := p.step("import"); err != nil {
		return err
	}
	if !p.frozen {
		return errors.New("packets of the connections pass already")
	}
	for _, f := range flows {
		if _, ok := p.conntrack[f.String()]; !ok {
			return fmt.Errorf("%s is not conntrack's", f.String())
		}
		p.imported[f.String()] = true
	}
	return nil
}

func (p *process) table() table {
	return table{
		insert: func(f *conntrack.Flow) error {
			if err := p.step("insert " + f.String()); err != nil {
				return err
			}
			if _, ok := p.conntrack[f.String()]; ok {
				return unix.EEXIST
			}
			p.conntrack[f.String()] = *f
			return nil
		},
		clear: func(f *conntrack.Flow) error {
			if err := p.step("clear"); err != nil {
				return err
			}
			delete(p.conntrack, f.String())
			return nil
		},
	}
}

// run is a process's life. It reports whether it was killed.
func (p *process) run(t *testing.T) (wasKilled bool, err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if _, wasKilled = r.(killed); !wasKilled {
				panic(r)
			}
		}
	}()
	return false, move(t.Context(), p, p.table(), p)
}

const flows = 6

// converges has the next process find everything in order.
func converges(t *testing.T, n *node, name string) {
	t.Helper()
	if _, err := (&process{node: n}).run(t); err != nil {
		t.Errorf("%s: the next attempt: %v", name, err)
	}
	if n.frozen || len(n.plane) != 0 || len(n.conntrack) != flows || len(n.lost) != 0 {
		t.Errorf("%s: after the next attempt: frozen %t, %d with the plane, %d with conntrack, lost %v", name, n.frozen, len(n.plane), len(n.conntrack), n.lost)
	}
}

func TestMove(t *testing.T) {
	n := newNode(flows)
	converges(t, n, "without faults")
	if len(n.imported) != flows {
		t.Errorf("the plane in force was told of %d flows, want %d", len(n.imported), flows)
	}
	if err := Move(t.Context(), nil, nil); err != nil {
		t.Errorf("nothing to move: %v", err)
	}
}

// TestMoveInParts tells of what can't be listed, and moves nothing with ctx done.
func TestMoveInParts(t *testing.T) {
	p := &process{node: newNode(flows), at: func(step string) error {
		if step == "leave" {
			return unix.ENOBUFS
		}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Move(ctx, p, p); !errors.Is(err, unix.ENOBUFS) || !errors.Is(err, context.Canceled) || p.frozen {
		t.Errorf("%v, frozen %t", err, p.frozen)
	}
}

// TestEachStepFails has each step fail, once, in every way. Packets pass afterwards,
// nothing is lost, and the next attempt moves what is left.
func TestEachStepFails(t *testing.T) {
	whole := &process{node: newNode(flows)}
	if _, err := whole.run(t); err != nil {
		t.Fatal(err)
	}
	for step := range whole.done {
		for _, fault := range []error{unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EAGAIN, unix.EIO} {
			n, count, failed := newNode(flows), -1, ""
			p := &process{node: n, at: func(name string) error {
				if count++; count == step {
					failed = name
					return fault
				}
				return nil
			}}
			_, err := p.run(t)
			name := fmt.Sprintf("%s at step %d, %s", fault, step, failed)
			if err == nil && n.frozen {
				t.Errorf("%s: nothing is said, and packets are frozen", name)
			}
			if failed != "before thaw" && n.frozen {
				t.Errorf("%s: frozen", name)
			}
			converges(t, n, name)
		}
	}
}

// TestKilledAtEachStep kills the process.
func TestKilledAtEachStep(t *testing.T) {
	whole := &process{node: newNode(flows)}
	if _, err := whole.run(t); err != nil {
		t.Fatal(err)
	}
	for step := range whole.done {
		n, count := newNode(flows), -1
		p := &process{node: n, at: func(name string) error {
			if count++; count == step {
				panic(killed(name))
			}
			return nil
		}}
		if wasKilled, _ := p.run(t); !wasKilled {
			t.Fatalf("step %d was not reached", step)
		}
		converges(t, n, fmt.Sprintf("killed at step %d", step))
	}
}

// TestConntrackFull has conntrack take some flows only, for good or for a moment.
func TestConntrackFull(t *testing.T) {
	for name, c := range map[string]struct{ refusals, stay int }{
		"for a moment": {refusals: 3, stay: 0},
		"for good":     {refusals: 1000, stay: flows - 2},
	} {
		n := newNode(flows)
		taken, refused := 0, 0
		p := &process{node: n, at: func(step string) error {
			if len(step) < 6 || step[:6] != "insert" {
				return nil
			}
			if taken >= 2 && refused < c.refusals {
				refused++
				return unix.ENOMEM
			}
			taken++
			return nil
		}}
		_, err := p.run(t)
		if len(n.imported) != flows-c.stay {
			t.Errorf("%s: the plane in force was told of %d flows, want %d", name, len(n.imported), flows-c.stay)
		}
		if (err != nil) != (c.stay > 0) || len(n.plane) != c.stay || n.frozen || len(n.lost) != 0 {
			t.Errorf("%s: %v, %d stay with the plane, want %d; frozen %t, lost %v", name, err, len(n.plane), c.stay, n.frozen, n.lost)
		}
		if err != nil && !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: %v", name, err)
		}
		converges(t, n, name)
	}
}

// TestOddFlow has conntrack not understand one of them: all others are moved.
func TestOddFlow(t *testing.T) {
	for _, fault := range []error{unix.EINVAL, &kernel.MissingError{What: "NAT", Err: unix.EOPNOTSUPP}} {
		n, odd := newNode(flows), true
		_, err := (&process{node: n, at: func(step string) error {
			if odd && step[:6] == "insert" {
				odd = false
				return fault
			}
			return nil
		}}).run(t)
		if err != nil || len(n.conntrack) != flows-1 || n.frozen {
			t.Errorf("%v: %v, %d of %d moved, frozen %t", fault, err, len(n.conntrack), flows, n.frozen)
		}
	}
}

// TestCancelled: with ctx done nothing is begun. If it is done in the middle, what was
// begun is finished.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := newNode(flows)
	p := &process{node: n, at: func(step string) error {
		if step == "release" {
			cancel()
		}
		return nil
	}}
	if err := move(ctx, p, p.table(), p); err != nil || n.frozen || len(n.conntrack) != flows {
		t.Errorf("cancelled in the middle: %v, frozen %t, %d moved", err, n.frozen, len(n.conntrack))
	}
	q := &process{node: newNode(flows)}
	if err := move(ctx, q, q.table(), q); !errors.Is(err, context.Canceled) || len(q.done) != 0 {
		t.Errorf("cancelled before: %v, did %v", err, q.done)
	}
}
