//go:build !race

// client-go reads the certificate that it has once outside its lock, in
// transport.(*dynamicClientCert).loadClientCert: whichever of two that is, it works,
// but the race detector fails a test that has certificates replaced.

package join_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/fairway-net/fairway/controller/nodecert"
	"github.com/fairway-net/fairway/kube"
	"github.com/fairway-net/fairway/kube/join"
)

// Clients look for another certificate every five minutes.
func init() { transport.CertCallbackRefreshDuration = 200 * time.Millisecond }

// TestRenewal: a machine renews its certificate by itself when little of it is
// left. Clients that it has made go on with the new one, and the API knows which
// of the two a request comes with.
func TestRenewal(t *testing.T) {
	c := start(t)
	// Certificates begin an hour ago: of this one, more than 90 % are over.
	c.life.Store(int64(5 * time.Minute))
	o := c.options("n1", c.token(time.Time{}))
	if err := join.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c.life.Store(0)
	first := pair(t, o.Dir).Leaf
	if left := time.Until(first.NotAfter); left > 5*time.Minute {
		t.Fatalf("the first certificate lasts for %s", left)
	}
	lasting, before := c.client(o.Dir), c.clientOfCopy(o.Dir)
	mayRead := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
		return err
	}
	for name, client := range map[string]kubernetes.Interface{"that lasts": lasting, "with a copy": before} {
		if err := mayRead(client); err != nil {
			t.Fatalf("a client %s: %v", name, err)
		}
	}
	// When certificates are issued is known to the second.
	until := first.NotBefore.Add(time.Hour + time.Second)
	c.eventually("that a second has passed", func() bool { return time.Now().After(until.Add(time.Second)) })

	config, err := kube.Config(join.Kubeconfig(o.Dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- join.Keep(ctx, o.Dir, config, slog.New(slog.DiscardHandler)) }()
	c.eventually("that the machine has another certificate", func() bool { return !pair(t, o.Dir).Leaf.Equal(first) })
	cancel()
	if err := <-kept; err != nil {
		t.Error(err)
	}
	second := pair(t, o.Dir).Leaf
	if left := time.Until(second.NotAfter).Round(time.Hour); left != 30*24*time.Hour || second.Subject.CommonName != "system:node:n1" {
		t.Errorf("the second certificate is %s's and lasts for %s", second.Subject.CommonName, left)
	}
	if err := nodecert.Revoke(t.Context(), c.admin, "n1", until); err != nil {
		t.Fatal(err)
	}
	c.eventually("that the first certificate isn't accepted", func() bool { return apierrors.IsUnauthorized(mayRead(before)) })
	c.eventually("that a client goes on with the second", func() bool { return mayRead(lasting) == nil })
}
