package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestMachinesAreKnownAhead: the addresses of each machine of the link are read when it is first
// heard, again while that fails, and now and then; a Node that is deleted has none.
func TestMachinesAreKnownAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachines()
		first, second := netip.MustParseAddr("10.77.0.12"), netip.MustParseAddr("10.77.0.22")
		type answer struct {
			addresses []netip.Addr
			err       error
		}
		answers := map[string][]answer{
			"m2": {{addresses: []netip.Addr{first}}, {addresses: []netip.Addr{second}}, {err: errors.New("no server")}, {err: apierrors.NewNotFound(schema.GroupResource{}, "m2")}},
			"m3": {{err: errors.New("no server")}, {addresses: []netip.Addr{first}}},
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.follow(ctx, func(_ context.Context, node string) ([]netip.Addr, error) {
				if len(answers[node]) == 0 {
					return nil, errors.New("no server")
				}
				a := answers[node][0]
				answers[node] = answers[node][1:]
				return a.addresses, a.err
			})
		}()
		is := func(what, node string, after time.Duration, want ...netip.Addr) {
			t.Helper()
			<-time.After(after)
			synctest.Wait()
			if got := m.of(node); got.Name != node || !slices.Equal(got.Addresses, want) {
				t.Errorf("%s: %s has %v, want %v", what, node, got.Addresses, want)
			}
		}
		m.meet("m2")
		m.meet("m3")
		is("at first", "m2", machineAgain/2, first)
		is("while no server answers", "m3", 0)
		is("once one answers", "m3", machineAgain, first)
		is("an hour later", "m2", machineRenew, second)
		m.meet("m2")
		is("while no server answers again", "m2", time.Second, second)
		is("once the Node is deleted", "m2", machineAgain)
		stop()
		<-done
	})
}

// TestAddressOfAnother: of a machine that is gone, an address that another one has that is there
// isn't gone, such as under a machine's former name, or by a Node that lists what isn't its own.
func TestAddressOfAnother(t *testing.T) {
	own, others := netip.MustParseAddr("10.77.0.12"), netip.MustParseAddr("10.77.0.13")
	m := newMachines()
	m.known(time.Now(), "m2", []netip.Addr{own, others}, nil)
	m.known(time.Now(), "m3", []netip.Addr{others}, nil)
	if got := m.gone([]string{"m2"}); len(got) != 1 || got[0].Name != "m2" || !slices.Equal(got[0].Addresses, []netip.Addr{own}) {
		t.Errorf("m2 is gone: %v", got)
	}
	if got := m.gone([]string{"m2", "m3"}); len(got) != 2 || !slices.Equal(got[1].Addresses, []netip.Addr{others}) {
		t.Errorf("both are gone: %v", got)
	}
	if got := m.of("m2").Addresses; !slices.Equal(got, []netip.Addr{own, others}) {
		t.Errorf("m2 is asked at %v", got)
	}
}
