package acme

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// secretWith has a certificate for a host.
func secretWith(t *testing.T, host string, from, to time.Time) *corev1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Data: map[string][]byte{
		corev1.TLSCertKey: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), corev1.TLSPrivateKeyKey: text,
	}}
}

// TestDue: a certificate is renewed with a third of its life left, and at once if
// it isn't good for a host.
func TestDue(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := secretWith(t, "a.example", from, from.Add(90*24*time.Hour))
	for _, test := range []struct {
		after time.Duration
		hosts []string
		want  time.Duration
	}{
		{0, []string{"a.example"}, 60 * 24 * time.Hour},
		{59 * 24 * time.Hour, []string{"a.example"}, 24 * time.Hour},
		{60 * 24 * time.Hour, []string{"a.example"}, 0},
		{100 * 24 * time.Hour, []string{"a.example"}, 0},
		{0, []string{"a.example", "b.example"}, 0},
	} {
		if got := good(s, test.hosts, from.Add(test.after)); got != test.want {
			t.Errorf("after %s, for %v: good for %s, want %s", test.after, test.hosts, got, test.want)
		}
	}
	if good(&corev1.Secret{}, nil, from) != 0 {
		t.Error("a Secret without a certificate is good")
	}
}

// TestLeftAlone: a certificate that is good costs nobody anything, and Secrets of
// others are never written.
func TestLeftAlone(t *testing.T) {
	now := time.Now()
	mine, others := secretWith(t, "a.example", now.Add(-time.Hour), now.Add(time.Hour*3)), secretWith(t, "a.example", now.Add(-2*time.Hour), now.Add(-time.Hour))
	mine.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "mine", Labels: map[string]string{Label: "true"}}
	others.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "others"}
	core := fake.NewClientset(mine, others)
	i := New(Options{Core: core, Directory: "https://127.0.0.1:1/", Namespace: "kube-system"})
	name := func(n string) Certificate {
		return Certificate{Secret: types.NamespacedName{Namespace: "shop", Name: n}, Hosts: []string{"a.example"}}
	}
	if obtained, again, err := i.ensure(t.Context(), name("mine")); obtained || err != nil || again < time.Hour {
		t.Errorf("one that is good: %v, %s, %v", obtained, again, err)
	}
	if _, _, err := i.ensure(t.Context(), name("others")); err == nil {
		t.Error("somebody else's is written")
	}
	for _, a := range core.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s of %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestAgain: failures are tried again later and later, and forgotten by a success.
func TestAgain(t *testing.T) {
	i := New(Options{Core: fake.NewClientset(), Directory: "https://127.0.0.1:1/", Namespace: "kube-system", Again: time.Minute})
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	i.Want([]Certificate{{Secret: name, Hosts: []string{"a.example"}}})
	before := time.Duration(0)
	for range 3 {
		now := time.Now()
		i.mu.Lock()
		i.known[name].next = now
		i.mu.Unlock()
		list, _ := i.due(now)
		if len(list) != 1 {
			t.Fatalf("%d are due", len(list))
		}
		i.try(t.Context(), list[0])
		if i.Failure(name) == nil {
			t.Fatal("nobody answers, and there is a certificate")
		}
		wait := time.Until(i.known[name].next)
		if wait <= before {
			t.Errorf("tried again after %s, and before after %s", wait, before)
		}
		before = wait
	}
	i.Want(nil)
	if i.Failure(name) != nil {
		t.Error("a certificate that nobody wants is remembered")
	}
}

// TestChallenges: what is published is taken back, and others' stays.
func TestChallenges(t *testing.T) {
	core := fake.NewClientset()
	i := New(Options{Core: core, Namespace: "kube-system"})
	first := acme.Challenge{Type: acme.ChallengeTypeHTTP01, Token: "one", KeyAuthorization: "one.key", Identifier: acme.Identifier{Type: "dns", Value: "a.example"}}
	second := acme.Challenge{Type: acme.ChallengeTypeTLSALPN01, Token: "two", KeyAuthorization: "two.key", Identifier: acme.Identifier{Type: "dns", Value: "a.example"}}
	s := &solver{i, map[string][]types.NamespacedName{"a.example": {{Namespace: "shop", Name: "gw"}, {Namespace: "kube-system", Name: "ingress"}}}}
	if s.Present(t.Context(), acme.Challenge{Type: acme.ChallengeTypeHTTP01, Token: "t", Identifier: acme.Identifier{Type: "dns", Value: "b.example"}}) == nil {
		t.Error("a host that leads nowhere is shown everywhere")
	}
	err := errors.Join(s.Present(t.Context(), first), s.Present(t.Context(), second), s.CleanUp(t.Context(), first))
	if err != nil {
		t.Fatal(err)
	}
	m, err := core.CoreV1().ConfigMaps("kube-system").Get(t.Context(), Challenges, metav1.GetOptions{})
	if err != nil || len(m.Data) != 2 || m.Data[TLSALPN01+"a.example"] == "" || m.Data[At+"a.example"] != "shop/gw kube-system/ingress" {
		t.Errorf("published: %v, %v", m, err)
	}
}
