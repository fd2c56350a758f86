package apiserver

import (
	"bytes"
	stdx509 "crypto/x509"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/x509"
)

// certificates authenticates by client certificate. The library checks
// signatures with each request, although a connection has one certificate for
// all of its requests. Here a certificate is checked the first time and, once it
// or the authority has expired, again. The authority stays the same as long as
// the server runs.
type certificates struct {
	library authenticator.Request
	now     func() time.Time
	// signs is the authority that signs now, and outdated is called with the user of a
	// certificate of another one. It may be nil.
	signs    *stdx509.Certificate
	outdated func(user string)

	mu    sync.RWMutex
	known map[string]*knownUser // by the certificate as it came
}

// knownUser is what a certificate was found to say.
type knownUser struct {
	response    *authenticator.Response
	from, until time.Time // when all of the chain is valid
	outdated    bool      // another authority than the one that signs now vouches for it
}

// mostKnown is how many certificates are remembered.
const mostKnown = 10000

func newCertificates(verify x509.VerifyOptionFunc) *certificates {
	c := &certificates{now: time.Now, known: map[string]*knownUser{}}
	c.library = x509.NewDynamic(verify, x509.UserConversionFunc(c.user))
	return c
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		if response := c.recall(req.TLS.PeerCertificates[0].Raw); response != nil {
			return response, true, nil
		}
	}
	return c.library.AuthenticateRequest(req)
}

func (c *certificates) recall(raw []byte) *authenticator.Response {
	c.mu.RLock()
	k := c.known[string(raw)]
	c.mu.RUnlock()
	if k == nil {
		return nil
	}
	if now := c.now(); now.Before(k.from) || now.After(k.until) {
		return nil
	}
	c.reportOutdated(k)
	return k.response
}

func (c *certificates) reportOutdated(k *knownUser) {
	if k.outdated && c.outdated != nil {
		c.outdated(k.response.User.GetName())
	}
}

// user is told a chain that has just been verified.
func (c *certificates) user(chain []*stdx509.Certificate) (*authenticator.Response, bool, error) {
	response, ok, err := x509.CommonNameUserConversion(chain)
	if err != nil || !ok {
		return response, ok, err
	}
	k := &knownUser{response: response, from: chain[0].NotBefore, until: chain[0].NotAfter}
	for _, certificate := range chain[1:] {
		if certificate.NotBefore.After(k.from) {
			k.from = certificate.NotBefore
		}
		if certificate.NotAfter.Before(k.until) {
			k.until = certificate.NotAfter
		}
	}
	if c.signs != nil && len(chain) > 1 {
		k.outdated = !bytes.Equal(chain[1].RawSubjectPublicKeyInfo, c.signs.RawSubjectPublicKeyInfo)
	}
	c.reportOutdated(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= mostKnown {
		clear(c.known)
	}
	c.known[string(chain[0].Raw)] = k
	return response, true, nil
}
