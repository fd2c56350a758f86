package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairway-net/fairway/apiserver/pki"
	"github.com/fairway-net/fairway/test/wait"
)

// peer is a member at a loopback address of its own.
func peer(t *testing.T, authorities *pki.Authorities, network byte, n int) (Options, *Member) {
	t.Helper()
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 253, network, byte(n)}), 2380)
	name := fmt.Sprintf("s%d", n)
	pair, err := authorities.Peer(name, []net.IP{at.Addr().AsSlice()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m := &Member{
		Name: name, Listen: at, Advertise: at, Local: true,
		CAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "peer.crt"), KeyFile: filepath.Join(dir, "peer.key"),
	}
	for file, data := range map[string][]byte{m.CAFile: authorities.Peers.CertPEM, m.CertFile: pair.Cert, m.KeyFile: pair.Key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Dir: filepath.Join(dir, "etcd"), Member: m}, m
}

func openMember(ctx context.Context, t *testing.T, o Options) *Backend {
	t.Helper()
	b, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close member: %v", err)
		}
	})
	return b
}

// TestRemoved: a member that the others remove ends with the reason, and never by
// etcd's panic about who isn't a member, whenever it is asked.
func TestRemoved(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	authorities, err := pki.OpenAll(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	network := byte(rand.IntN(256))
	first, _ := peer(t, authorities, network, 1)
	one := openMember(ctx, t, first)
	second, m := peer(t, authorities, network, 2)
	for m.Join == "" { // the first has to know itself for healthy, which takes five seconds
		if m.Join, err = one.AddLearner(ctx, m.Name, m.URL()); err != nil {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				t.Fatal("the second member can't be announced:", err)
			}
		}
	}
	two := openMember(ctx, t, second)

	asked := make(chan error, 1)
	go func() {
		var err error
		for !errors.Is(err, errRemoved) && ctx.Err() == nil {
			if _, err = two.isLearner(); err == nil {
				err = two.unlessRemoved(func() error { _, err := two.Client.Status(ctx, ""); return err })
			}
		}
		asked <- err
	}()
	removedMeanwhile := make(chan error, 1)
	go func() {
		removedMeanwhile <- two.unlessRemoved(func() error {
			for range wait.Every(ctx, time.Millisecond) { // within what is called
				if two.removed() {
					break
				}
			}
			if two.etcd.IsMemberExist(two.etcd.MemberID()) {
				return errRemoved // the other one said so first: TestEndedByItself
			}
			two.etcd.IsLearner()
			return errors.New("etcd has an answer for a member that was removed: unlessRemoved isn't needed")
		})
	}()
	for {
		err := one.Remove(ctx, uint64(two.etcd.MemberID()))
		if err == nil {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			t.Fatal("the second member can't be removed:", err)
		}
	}
	for name, c := range map[string]<-chan error{"asked when it is removed": removedMeanwhile, "asked all the time": asked, "itself": two.Failed} {
		select {
		case err := <-c:
			if !errors.Is(err, errRemoved) {
				t.Errorf("a member that was removed, %s: %v, want %v", name, err, errRemoved)
			}
		case <-ctx.Done():
			t.Errorf("a member that was removed, %s: nothing is heard", name)
		}
	}
}

// TestEndedByItself: a member to which another one says that it was removed ends before
// its own list says so. Whatever is asked then gets the reason, too.
func TestEndedByItself(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authorities, err := pki.OpenAll(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	options, _ := peer(t, authorities, byte(rand.IntN(256)), 1)
	one := openMember(ctx, t, options)
	asked := make(chan error, 1)
	go func() {
		asked <- one.unlessRemoved(func() error {
			<-one.etcd.StopNotify()
			_, err := one.Client.Status(ctx, "")
			return fmt.Errorf("etcd has an answer after its end: %w", err)
		})
	}()
	one.etcd.HardStop()
	if err := <-asked; !errors.Is(err, errRemoved) {
		t.Errorf("asked while it ends: %v, want %v", err, errRemoved)
	}
	if _, err := one.isLearner(); !errors.Is(err, errRemoved) {
		t.Errorf("asked afterwards: %v, want %v", err, errRemoved)
	}
}
