package host

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairway-net/fairway/ingress/model"
)

func by(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func certificate(name string) *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{[]byte(name)}}
}

// TestSettle: who may say what of a host.
func TestSettle(t *testing.T) {
	clients := &model.ClientValidation{Roots: x509.NewCertPool()}
	others := &model.ClientValidation{Roots: x509.NewCertPool(), Optional: true}
	first := Claim{By: by("shop", "web"), Host: "h", Paths: true}
	with := func(c Claim, change func(*Claim)) Claim { change(&c); return c }
	for _, test := range []struct {
		name    string
		claims  []Claim
		holds   string
		refused string
	}{
		{
			"the owner's certificate is the host's",
			[]Claim{with(first, func(c *Claim) { c.Certificate, c.For = certificate("a"), "h" }), {By: by("evil", "x"), Host: "h", Paths: true, Certificate: certificate("b"), For: "h", Clients: others, Passthrough: true, Redirect: Never}},
			"shop/web a of shop/web clients false passthrough false redirect 0",
			"[{evil/x the certificate shop/web} {evil/x which clients are let in (auth-tls-secret) shop/web} {evil/x ssl-passthrough shop/web} {evil/x ssl-redirect shop/web}]",
		},
		{
			"who has no path doesn't own, however old",
			[]Claim{{By: by("evil", "x"), Host: "h", Certificate: certificate("b"), For: "h"}, first},
			"shop/web  of / clients false passthrough false redirect 0",
			"[{evil/x the certificate shop/web}]",
		},
		{
			"the namespace settles what the owner leaves open",
			[]Claim{first, {By: by("shop", "tls"), Host: "h", Certificate: certificate("a"), For: "h", Clients: clients, Redirect: Always}},
			"shop/web a of shop/tls clients true passthrough false redirect 3", "[]",
		},
		{
			"the certificate for the host itself is before one that covers it",
			[]Claim{with(first, func(c *Claim) { c.Certificate, c.For = certificate("wild"), "*.h" }), {By: by("shop", "tls"), Host: "h", Certificate: certificate("own"), For: "h"}},
			"shop/web own of shop/tls clients false passthrough false redirect 0", "[]",
		},
		{
			"two Secrets may hold one certificate",
			[]Claim{with(first, func(c *Claim) { c.Certificate, c.For = certificate("a"), "h" }), {By: by("other", "x"), Host: "h", Paths: true, Certificate: certificate("a"), For: "h"}},
			"shop/web a of shop/web clients false passthrough false redirect 0", "[]",
		},
	} {
		r, refused := Settle(test.claims)
		text := ""
		if r.Certificate != nil {
			text = string(r.Certificate.Certificate[0])
		}
		if got := fmt.Sprintf("%s %s of %s clients %t passthrough %t redirect %d", r.By, text, r.Issuer, r.Clients != nil, r.Passthrough, r.Redirect); got != test.holds {
			t.Errorf("%s: holds %q, want %q", test.name, got, test.holds)
		}
		if got := fmt.Sprint(refused); got != test.refused {
			t.Errorf("%s: refused %s, want %s", test.name, got, test.refused)
		}
	}
}
