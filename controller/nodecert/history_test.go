package nodecert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairway-net/fairway/controller/cluster"
	"github.com/fairway-net/fairway/internal/revocation"
)

// history plays joins, renewals, revocations, deletions and steps of the clock
// against a model that knows their true order.
type history struct {
	*testing.T
	random  *mathrand.Rand
	client  *fake.Clientset
	c       *Controller
	clock   time.Time
	key     *ecdsa.PrivateKey
	holds   map[string][]*held // certificates, by machine
	pending map[string]*held   // by the name of a request: what it was made with
	asked   int
}

// held is a certificate of a machine; the model says whether it must hold.
type held struct {
	issued time.Time
	valid  bool
}

var machines = []string{"m1", "m2", "m3"}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		T: t, random: mathrand.New(mathrand.NewPCG(seed, 1)), client: fake.NewClientset(),
		clock: time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC), holds: map[string][]*held{}, pending: map[string]*held{},
	}
	cache, err := cluster.New(h.client)
	if err != nil {
		t.Fatal(err)
	}
	h.restart(cache)
	if h.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	return h
}

// restart makes another controller the leader, which remembers nothing.
func (h *history) restart(cache *cluster.Cache) {
	c, err := New(cache, h, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		h.Fatal(err)
	}
	c.now = func() time.Time { return h.clock }
	h.c = c
}

// Sign implements Signer, by the history's clock.
func (h *history) Sign(request *x509.CertificateRequest, _ time.Duration, after time.Time) ([]byte, error) {
	at := h.clock
	if !at.After(after) {
		at = after.Add(1)
	}
	template := &x509.Certificate{SerialNumber: new(big.Int).Lsh(big.NewInt(at.UnixNano()), revocation.SerialRandomBits), Subject: request.Subject}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &h.key.PublicKey, h.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// ask stores a request of a machine; with a certificate, or to join.
func (h *history) ask(node string, with *held) string {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: nodePrefix + node, Organization: []string{nodesGroup}},
	}, h.key)
	if err != nil {
		h.Fatal(err)
	}
	h.asked++
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("r", h.asked), CreationTimestamp: metav1.NewTime(h.clock)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: allowedUsages,
			Username: "system:bootstrap:abcdef", Groups: []string{bootstrappers},
		},
	}
	if with != nil {
		r.Spec.Username, r.Spec.Groups = nodePrefix+node, []string{nodesGroup}
		r.Spec.Extra = map[string]certificatesv1.ExtraValue{revocation.IssuedKey: {with.issued.Format(time.RFC3339Nano)}}
	}
	if _, err := h.client.CertificatesV1().CertificateSigningRequests().Create(h.Context(), r, metav1.CreateOptions{}); err != nil {
		h.Fatal(err)
	}
	return r.Name
}

// answer has the controller answer a request; nil if the machine gets no certificate.
func (h *history) answer(name, node string) *held {
	if err := h.c.sync(h.Context(), name); err != nil {
		h.Fatal(err)
	}
	r, err := h.client.CertificatesV1().CertificateSigningRequests().Get(h.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		h.Fatal(err)
	}
	at, of := issued(r)
	if of != node {
		return nil
	}
	certificate := &held{issued: at, valid: true}
	h.holds[node] = append(h.holds[node], certificate)
	return certificate
}

func (h *history) revokeAll(node string) {
	for _, c := range h.holds[node] {
		c.valid = false
	}
}

// step does one thing, and says which.
func (h *history) step() string {
	node := machines[h.random.IntN(len(machines))]
	switch h.random.IntN(8) {
	case 0:
		name := h.ask(node, nil)
		h.revokeAll(node)
		if h.answer(name, node) == nil {
			h.Errorf("%s can't join", node)
		}
		return node + " joins"
	case 1, 2: // asks to renew; the answer comes later
		for _, c := range h.holds[node] {
			if c.valid {
				h.pending[h.ask(node, c)+" "+node] = c
				break
			}
		}
		return node + " asks"
	case 3, 4:
		for key, with := range h.pending {
			var name, of string
			_, _ = fmt.Sscan(key, &name, &of)
			delete(h.pending, key)
			if got := h.answer(name, of); (got != nil) != with.valid {
				h.Errorf("%s, asked for with a certificate that is valid: %v, was granted: %v", key, with.valid, got != nil)
			}
			return key + " is answered"
		}
	case 5:
		if err := LockOut(h.Context(), h.client, node); err != nil {
			h.Fatal(err)
		}
		h.revokeAll(node)
		return node + " is locked out"
	case 6:
		if err := h.c.lookOver(h.Context()); err != nil {
			h.Fatal(err)
		}
		return "looked over"
	case 7:
		by := time.Duration(h.random.Int64N(int64(4*time.Hour))) - 2*time.Hour
		h.clock = h.clock.Add(by)
		return fmt.Sprint("the clock steps by ", by)
	}
	return "nothing"
}

// check compares what API servers accept with the model.
func (h *history) check() bool {
	good := true
	for _, node := range machines {
		entry, listed, err := entryOf(h.Context(), h.client, node)
		if err != nil {
			h.Fatal(err)
		}
		for i, c := range h.holds[node] {
			if accepted := !listed || !entry.Revokes(c.issued); accepted != c.valid {
				h.Errorf("certificate %d of %s, issued at %s: accepted %v, want %v (%s)", i, node, c.issued, accepted, c.valid, entry)
				good = false
			}
		}
	}
	return good
}

// TestHistory: what was revoked never holds again, whatever was pending and however
// clocks go; what was issued since then does.
func TestHistory(t *testing.T) {
	for seed := range uint64(25) {
		h := newHistory(t, seed)
		var did []string
		for range 60 {
			did = append(did, h.step())
			if !h.check() || t.Failed() {
				t.Fatalf("seed %d: %v", seed, did)
			}
			h.clock = h.clock.Add(time.Second)
		}
	}
}

// TestRevokedWhileSigning: a revocation between the look at the list and the answer
// makes the certificate invalid, or the request is not answered.
func TestRevokedWhileSigning(t *testing.T) {
	h := newHistory(t, 1)
	h.answer(h.ask("m1", nil), "m1")
	name := h.ask("m1", h.holds["m1"][0])
	h.c.signer = signerFunc(func(r *x509.CertificateRequest, life time.Duration, after time.Time) ([]byte, error) {
		if err := LockOut(t.Context(), h.client, "m1"); err != nil {
			t.Error(err)
		}
		return h.Sign(r, life, after)
	})
	if err := h.c.sync(t.Context(), name); err == nil {
		r, err := h.client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && len(r.Status.Certificate) > 0 {
			t.Error("it was signed")
		}
	}
}

type signerFunc func(*x509.CertificateRequest, time.Duration, time.Time) ([]byte, error)

func (f signerFunc) Sign(r *x509.CertificateRequest, life time.Duration, after time.Time) ([]byte, error) {
	return f(r, life, after)
}

// TestGoneWhileNobodyRan: the machines whose Nodes were deleted while no controller
// ran are found at the start, and those that were dropped from the list aren't again.
func TestGoneWhileNobodyRan(t *testing.T) {
	h := newHistory(t, 1)
	for _, node := range machines {
		h.answer(h.ask(node, nil), node)
	}
	if _, err := h.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m2"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.clock = h.clock.Add(registerTime + time.Minute)
	if err := h.c.lookOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.c.revokeGone(t.Context(), gone{"m1", h.clock}); err != nil { // as lookOver has queued
		t.Fatal(err)
	}
	entry, _, _ := entryOf(t.Context(), h.client, "m1")
	if !entry.Gone || !entry.Revokes(h.holds["m1"][0].issued) {
		t.Errorf("m1: %s", entry)
	}
	h.clock = h.clock.Add(keepRevoked + time.Hour)
	if err := h.c.lookOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, listed, _ := entryOf(t.Context(), h.client, "m1"); listed {
		t.Error("a machine that is long gone is listed for ever")
	}
	if _, listed, _ := entryOf(t.Context(), h.client, "m2"); !listed {
		t.Error("a machine that is there was dropped")
	}
}
