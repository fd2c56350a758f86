package policy

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// IdentityPrefix is what the headers begin with that say what a client's certificate is.
const IdentityPrefix = "Ssl-Client-"

// Subject is the name of a client's certificate, the most specific part first (RFC 4514);
// "" if the client has shown none.
func Subject(s *tls.ConnectionState) string {
	if s == nil || len(s.PeerCertificates) == 0 {
		return ""
	}
	return nameOf(s.PeerCertificates[0].RawSubject)
}

// nameOf writes a name in the order that it has.
func nameOf(raw []byte) string {
	var name pkix.RDNSequence
	if rest, err := asn1.Unmarshal(raw, &name); err != nil || len(rest) > 0 {
		return ""
	}
	return name.String()
}

// Identify says in a request what the client's certificate is. Clients' own word of that
// is dropped.
func Identify(h http.Header, s *tls.ConnectionState, i *model.Identity) {
	for name := range h {
		if strings.HasPrefix(fold(name), IdentityPrefix) {
			delete(h, name)
		}
	}
	if s == nil || len(s.PeerCertificates) == 0 {
		h[IdentityPrefix+"Verify"] = []string{"NONE"}
		return
	}
	c := s.PeerCertificates[0]
	verified := "SUCCESS"
	if len(s.VerifiedChains) == 0 { // any was let in
		verified = "FAILED:unable to verify the first certificate"
	}
	h[IdentityPrefix+"Verify"] = []string{verified}
	h[IdentityPrefix+"Subject-Dn"] = []string{nameOf(c.RawSubject)}
	h[IdentityPrefix+"Issuer-Dn"] = []string{nameOf(c.RawIssuer)}
	if i.Whole {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
		h[IdentityPrefix+"Cert"] = []string{strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20")}
	}
}
