package apiserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairway-net/fairway/apiserver/identity"
	"github.com/fairway-net/fairway/kube/join"
)

// TestTokenReads: ten thousand made-up tokens within a second cost twenty reads, and a
// token that was stored before it is asked for is found among them.
func TestTokenReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		var stored atomic.Pointer[identity.ServerToken]
		r := &tokenReads{list: func(context.Context) ([]identity.ServerToken, error) {
			reads.Add(1)
			token := stored.Load()
			time.Sleep(time.Millisecond) // what is stored meanwhile isn't in the answer
			if token == nil {
				return nil, nil
			}
			return []identity.ServerToken{*token}, nil
		}}
		var asking sync.WaitGroup
		for n := range 10_000 {
			if n == 5_000 {
				stored.Store(&identity.ServerToken{ID: "true"})
				asking.Go(func() {
					if token, err := r.find(t.Context(), "true"); err != nil || token == nil {
						t.Errorf("the token that was stored: %v, %v", token, err)
					}
				})
			}
			asking.Go(func() {
				if token, err := r.find(t.Context(), fmt.Sprint(n)); err != nil || token != nil {
					t.Errorf("a token that was made up: %v, %v", token, err)
				}
			})
			time.Sleep(time.Second / 10_000)
		}
		asking.Wait()
		if n := reads.Load(); n > unknownPerSecond+2 {
			t.Errorf("%d reads in a second", n)
		}
	})
}

// TestTokenReadsEnd: who gives up doesn't wait, and a read that fails is told.
func TestTokenReadsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no leader")
		r := &tokenReads{list: func(context.Context) ([]identity.ServerToken, error) { return nil, broken }}
		if _, err := r.find(t.Context(), "a"); !errors.Is(err, broken) {
			t.Errorf("the store fails: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.find(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up: %v", err)
		}
		time.Sleep(tokenReadPeriod) // the read that nobody waits for
	})
}

// TestTokensInFlood: while somebody without a credential makes up tokens, those that were
// just made hold at once.
func TestTokensInFlood(t *testing.T) {
	s := start(t, testConfig(t))
	admin := client(t, s)
	hash, err := join.HashPEM(s.CA())
	if err != nil {
		t.Fatal(err)
	}
	asks := func(bearer string) error {
		c, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL(), BearerToken: bearer, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA()}})
		if err != nil {
			return err
		}
		return c.CoreV1().RESTClient().Get().AbsPath("/api").Do(within(t)).Error()
	}
	ctx, end := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	// Deferred, since the test's context, under which each request stands, ends before what Cleanup runs.
	defer func() { end(); flood.Wait() }()
	var made atomic.Int32
	for who := range 8 {
		flood.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for _, form := range []string{"%06d.0123456789abcdef", "server-%06d.0123456789abcdef"} {
					if err := asks(fmt.Sprintf(form, who*100_000+n)); ctx.Err() == nil && !apierrors.IsUnauthorized(err) {
						t.Errorf("a token that was made up: %v", err)
					}
					made.Add(1)
				}
			}
		})
	}
	eventually(t, "that the burst of reads is used up", func() bool { return made.Load() > unknownBurst && !s.access.objects.unknown.Allow() })
	for range 10 {
		machine := join.NewToken(hash)
		if _, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(within(t), machine.Object("", time.Time{}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := asks(machine.Bearer()); err != nil {
			t.Errorf("a machine's token that was just made: %v", err)
		}
		server, err := join.ParseServerToken(serverTokenBy(t, admin, s.CA(), time.Time{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := asks(server.Bearer()); err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("a server's token that was just made: %v", err)
		}
	}
}
