package speaker

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairway-net/fairway/test/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/announce/steering"
)

// notingSteerer is a steerer that notes what is asked, and lets it wait.
type notingSteerer struct {
	asked   chan []netip.Addr
	proceed chan struct{}
	kept    map[netip.Addr]int
}

func (s *notingSteerer) Set([]steering.Router) {}

func (s *notingSteerer) Prepare(_ context.Context, addresses []netip.Addr, _ bool) {
	slices.SortFunc(addresses, netip.Addr.Compare)
	s.asked <- addresses
	<-s.proceed
}

func (s *notingSteerer) Kept() map[netip.Addr]int { return s.kept }

// Other nodes are prepared before routers hear that a node leaves, and before they hear that
// it is back, whatever the reason; connections that are left are told of a node that may not announce.
func TestOthersAreToldFirst(t *testing.T) {
	label := func(n *Speaker, away bool) { n.SetNode(excluded(away), true) }
	t.Run("label", func(t *testing.T) { othersAreToldFirst(t, label) })
	t.Run("rival", func(t *testing.T) {
		othersAreToldFirst(t, func(n *Speaker, away bool) {
			label(n, false)
			n.setSpeaker(types.NamespacedName{Name: "speaker-x"}, away)
		})
	})
	t.Run("refused", func(t *testing.T) {
		k := &keys{}
		othersAreToldFirst(t, func(n *Speaker, away bool) {
			label(n, false)
			for range mostRefused {
				n.noteRefusal(k, away)
			}
		})
	})
}

// excluded is a Node, with the label that keeps load balancers away or without it.
func excluded(yes bool) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}}}
	if yes {
		o.Labels[corev1.LabelNodeExcludeBalancers] = ""
	}
	return o
}

func othersAreToldFirst(t *testing.T, set func(n *Speaker, away bool)) {
	book, one := &notebook{}, netip.MustParseAddr("192.0.2.1")
	leads := &notingSteerer{asked: make(chan []netip.Addr, 1), proceed: make(chan struct{}), kept: map[netip.Addr]int{one: 3}}
	n := announcingTo(t, book)
	n.steerer = leads
	n.Intend(balanced(1, "192.0.2.1"))
	n.Applied(balanced(1, "192.0.2.1"), nil)
	settled := func() {
		t.Helper()
		leads.proceed <- struct{}{}
		for late := range wait.Tries(10 * time.Second) {
			n.mu.Lock()
			moving := n.moving
			n.mu.Unlock()
			if !moving {
				break
			}
			if late {
				t.Fatal("the node's state is never taken in")
			}
		}
		n.decide()
	}
	for _, step := range []struct {
		away         bool
		before, then []string
		kept         int
	}{
		{true, []string{"192.0.2.1/32"}, nil, 3},
		{false, nil, []string{"192.0.2.1/32"}, 0},
	} {
		set(n, step.away)
		if asked := <-leads.asked; !slices.Equal(asked, []netip.Addr{one}) {
			t.Fatalf("others are told of %v", asked)
		}
		set(n, step.away) // as any write of the Node has it
		n.decide()
		if !slices.Equal(book.routes, step.before) {
			t.Errorf("away %v: while others prepare, routers are told %q, want %q", step.away, book.routes, step.before)
		}
		settled()
		if !slices.Equal(book.routes, step.then) {
			t.Errorf("away %v: routers are told %q, want %q", step.away, book.routes, step.then)
		}
		report := n.status()
		if got := sum(report.Kept); got != step.kept {
			t.Errorf("away %v: %d connections are kept, want %d", step.away, got, step.kept)
		}
	}
	n.carriesOn = func() bool { return true } // but not for this Service
	n.SetNode(excluded(true), false)
	<-leads.asked
	n.SetNode(excluded(false), true) // it has come back meanwhile
	settled()
	if !slices.Equal(book.routes, []string{"192.0.2.1/32"}) {
		t.Errorf("routers are told %q of a node that didn't leave", book.routes)
	}
	n.SetNode(excluded(false), true)
	select {
	case <-leads.asked:
		t.Error("others are told of a change that is none")
	default:
	}
}

// TestShutdown: a machine that shuts down prepares the other nodes, as one that is drained,
// before routers hear of it; an agent that is followed by another one does nothing.
func TestShutdown(t *testing.T) {
	for _, stops := range []bool{true, false} {
		book, one := &notebook{}, netip.MustParseAddr("192.0.2.1")
		leads := &notingSteerer{asked: make(chan []netip.Addr, 1), proceed: make(chan struct{})}
		n := announcingTo(t, book)
		n.steerer, n.systemd = leads, t.TempDir()
		says := "running"
		if stops {
			says = "stopping"
		}
		if err := os.WriteFile(filepath.Join(n.systemd, "systemctl"), []byte("#!/bin/sh\necho "+says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", n.systemd+":"+os.Getenv("PATH"))
		n.Intend(balanced(1, "192.0.2.1"))
		n.Applied(balanced(1, "192.0.2.1"), nil)
		done := make(chan struct{})
		go func() { defer close(done); n.handOver() }()
		want := []string{"192.0.2.1/32"}
		if stops {
			if asked := <-leads.asked; !slices.Equal(asked, []netip.Addr{one}) {
				t.Errorf("others are told of %v", asked)
			}
			if n.mu.Lock(); !slices.Equal(book.routes, want) {
				t.Errorf("while others prepare, routers are told %q", book.routes)
			}
			n.mu.Unlock()
			leads.proceed <- struct{}{}
			want = nil
		}
		<-done
		if !slices.Equal(book.routes, want) {
			t.Errorf("stops %v: routers are told %q, want %q", stops, book.routes, want)
		}
	}
}
