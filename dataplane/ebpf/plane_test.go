package ebpf

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/fairway-net/fairway/dataplane/ebpf/program"
	"github.com/fairway-net/fairway/dataplane/ebpf/sock"
	"github.com/fairway-net/fairway/internal/cgroup"
	"github.com/fairway-net/fairway/internal/kernel"
	"github.com/fairway-net/fairway/model"
	"github.com/fairway-net/fairway/test/netnstest"
)

// inNode runs a test as on a node: in a network namespace and with a cgroup of
// its own.
func inNode(t *testing.T, test func(t *testing.T, options kernel.Options)) {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "fairway-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}()
	ns := netnstest.New(t)
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}); err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(func() error { test(t, kernel.Options{Cgroup: dir, StateDir: t.TempDir()}); return nil }); err != nil {
		t.Error(err)
	}
}

func newPlane(t *testing.T, options kernel.Options) *Plane {
	t.Helper()
	p, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// agrees holds what the kernel has against what Render says.
func agrees(t *testing.T, p *Plane, want *model.Table) {
	t.Helper()
	var rendered []kernel.Object
	var err error
	if want != nil {
		rendered, err = Render(want, p.options)
	}
	if err != nil {
		t.Fatal(err)
	}
	objects, err := p.objects(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rendered, objects); diff != "" {
		t.Errorf("what Render wants (-) and what Objects finds (+):\n%s", diff)
	}
}

// TestLife: a plane applies, repairs what others broke, is succeeded by another
// process, and leaves nothing behind.
func TestLife(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		ctx, want := context.Background(), webTable(20, 3)
		p := newPlane(t, options)
		apply := func(verify bool) {
			t.Helper()
			if _, err := p.Apply(ctx, want, kernel.VerifyIf(verify)); err != nil {
				t.Fatal(err)
			}
			agrees(t, p, want)
		}
		check := func(want *model.Table, agrees bool) {
			t.Helper()
			found, err := p.check(ctx, want)
			if got := len(found.Found) == 0; err != nil || got != agrees {
				t.Errorf("comparing beside changes says that all agrees: %t (%v), want %t: %q", got, err, agrees, slices.Collect(maps.Keys(found.Found)))
			}
		}
		apply(false)
		check(want, true)

		break1, break2 := p.store.Tables[program.Slots], p.store.Tables[program.Frontends]
		if err := break1.Remove(program.SlotKey(p.state.PoolNumber(model.PoolID{Name: "default/web-3:http", Proto: model.TCP}), 1)); err != nil {
			t.Fatal(err)
		}
		if err := break2.Put(program.FrontendKey(model.Key{Addr: netip.MustParseAddr("10.1.1.1"), Port: 1, Proto: model.TCP}), program.FrontendValue(7, 0, [3]model.Route{}, p.state.PoolNumber)); err != nil {
			t.Fatal(err)
		}
		check(want, false)
		links, err := filepath.Glob(filepath.Join(p.dir, "connect4-*"))
		if err != nil || len(links) != 1 || os.Remove(links[0]) != nil {
			t.Fatalf("detach program: %v, %v", links, err)
		}
		apply(true)
		check(want, true)
		check(webTable(21, 3), false)
		if err := os.Remove(links[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Apply(ctx, want, kernel.VerifyRest); err != nil {
			t.Fatal(err)
		}
		agrees(t, p, want)

		ids := map[model.Key]uint32{}
		for f := range want.Frontends() {
			ids[f.Key] = p.state.FrontendID(f.Key)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p = newPlane(t, options)
		want = webTable(40, 3)
		apply(false)
		for k, id := range ids {
			if p.state.FrontendID(k) != id {
				t.Errorf("frontend %s had id %d and has %d", k, id, p.state.FrontendID(k))
			}
		}
		want = webTable(3, 1)
		apply(false)

		if err := p.Remove(ctx, kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
			t.Errorf("pins are left: %v", err)
		}
		agrees(t, p, nil)
	})
}

// TestGrowth: tables become larger as they need to.
func TestGrowth(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		ctx, want := context.Background(), webTable(10, 2)
		p := newPlane(t, options)
		if _, err := p.Apply(ctx, want, kernel.VerifyNothing); err != nil {
			t.Fatal(err)
		}
		over, ended := make(chan struct{}), make(chan error, 1)
		go func() { // somebody reads all the time
			for {
				select {
				case <-over:
					ended <- nil
					return
				default:
				}
				if _, err := p.check(ctx, want); err != nil {
					ended <- err
					return
				}
			}
		}()
		for _, services := range []int{40, 300, 3000} {
			if _, err := p.Apply(ctx, webTable(services, 2), kernel.VerifyNothing); err != nil {
				t.Fatal(err)
			}
		}
		close(over)
		if err := <-ended; err != nil {
			t.Errorf("compare while tables grow: %v", err)
		}
		want = webTable(3000, 2)
		agrees(t, p, want)
		if found, err := p.check(ctx, want); err != nil || len(found.Found) > 0 {
			t.Errorf("comparing says %q, %v", slices.Collect(maps.Keys(found.Found)), err)
		}
		if err := p.Remove(ctx, kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFull: what finds no room is an error, and the rest is done.
func TestFull(t *testing.T) {
	inNode(t, func(t *testing.T, options kernel.Options) {
		p := newPlane(t, options)
		for _, path := range p.paths {
			path.Spec().Maps[string(program.Prefixes)].MaxEntries = 4
		}
		e := webTable(10, 2).Edit()
		s := &model.Settings{}
		for i := range 6 {
			s.Reserved = append(s.Reserved, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16))
		}
		e.SetSettings(s)
		result, err := p.Apply(context.Background(), e.Table(), kernel.VerifyNothing)
		var full *kernel.FullError
		if err != nil || !errors.As(result.Err(), &full) || full.LeftOut != 2 {
			t.Errorf("%v, left out %v, expected the map to have no room for 2", err, result.Err())
		}
		if links, err := filepath.Glob(filepath.Join(p.dir, "*-*")); err != nil || len(links) != len(sock.Hooks) {
			t.Errorf("attached socket programs: %v, %v", links, err)
		}
		if have, err := p.store.Read(); err != nil || len(have[program.Frontends]) != 10 || len(have[program.Prefixes]) != 4 {
			t.Errorf("%d frontends and %d prefixes, %v", len(have[program.Frontends]), len(have[program.Prefixes]), err)
		}
		// What is left out is said again with each change, which doesn't compare for it.
		state := p.state
		e = webTable(10, 3).Edit()
		e.SetSettings(s)
		result, err = p.Apply(context.Background(), e.Table(), kernel.VerifyNothing)
		if !errors.As(result.Err(), &full) || full.LeftOut != 2 || err != nil || p.state != state {
			t.Errorf("%v, left out %v, compared: %t", err, result.Err(), p.state != state)
		}
		e = webTable(10, 3).Edit()
		less := *s
		less.Reserved = s.Reserved[2:]
		e.SetSettings(&less)
		want := e.Table()
		if result, err = p.Apply(context.Background(), want, kernel.VerifyNothing); err != nil || result.Err() != nil || p.state != state {
			t.Errorf("%v, left out %v, compared: %t; expected room for all", err, result.Err(), p.state != state)
		}
		agrees(t, p, want)
		if err := p.Remove(context.Background(), kernel.EndConnections); err != nil {
			t.Fatal(err)
		}
	})
}
