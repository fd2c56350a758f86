package nodecert

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/revocation"
)

// TestGoneKeepsNewCertificates: of a machine whose Node was deleted, the certificates
// from before are revoked, and not the one with which it has joined again since then.
func TestGoneKeepsNewCertificates(t *testing.T) {
	client := fake.NewClientset()
	cache, err := cluster.New(client)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(cache, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listed := func() string {
		list, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), revocation.ListOf("m1"), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Data["m1"]
	}
	deleted := time.Date(2026, 11, 24, 10, 0, 0, 0, time.UTC)
	if err := c.revokeGone(t.Context(), gone{"m1", deleted}); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != "2026-11-24T10:00:00Z gone" {
		t.Errorf("revoked until %s, want when the Node was deleted", got)
	}
	// It joins again, by which all from before are revoked.
	joined := deleted.Add(5 * time.Second)
	if err := Revoke(t.Context(), client, "m1", joined); err != nil {
		t.Fatal(err)
	}
	if err := c.revokeGone(t.Context(), gone{"m1", deleted}); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != "2026-11-24T10:00:05Z" {
		t.Errorf("revoked until %s, want when it joined again", got)
	}
}

// TestRevokeTriesAgain: two that revoke at a time both do.
func TestRevokeTriesAgain(t *testing.T) {
	client, conflicts := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: revocation.ListOf("m1"), Namespace: metav1.NamespaceSystem}}), 2
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(corev1.Resource("configmaps"), revocation.ListOf("m1"), nil)
	})
	if err := Revoke(t.Context(), client, "m1", time.Now()); err != nil {
		t.Fatal(err)
	}
}

// TestAnsweredTwice: a leader that answers a request to join which another has answered meanwhile
// doesn't revoke the certificate that the machine got.
func TestAnsweredTwice(t *testing.T) {
	h := newHistory(t, 1)
	before := h.answer(h.ask("m1", nil), "m1")
	h.clock = h.clock.Add(time.Minute)
	name := h.ask("m1", nil)
	requests := h.client.CertificatesV1().CertificateSigningRequests()
	read, err := requests.Get(t.Context(), name, metav1.GetOptions{}) // as the other leader has read it
	if err != nil {
		t.Fatal(err)
	}
	first := h.answer(name, "m1")
	h.clock = h.clock.Add(time.Second)
	if err := h.c.sign(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	entry, _, err := entryOf(t.Context(), h.client, "m1")
	if err != nil {
		t.Fatal(err)
	}
	if first == nil || entry.Revokes(first.issued) {
		t.Errorf("revoked until %s: the certificate that the machine has got doesn't hold", entry.Until)
	}
	if !entry.Revokes(before.issued) {
		t.Errorf("revoked until %s: the certificate of the machine that had the name before holds", entry.Until)
	}
}
