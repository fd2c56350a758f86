package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
)

const (
	// askTimeout bounds the first question to a server.
	askTimeout = 3 * time.Second
	// mostVersionBytes is how much of its answer is read.
	mostVersionBytes = 64 << 10
	// clockTolerance is how far the clocks of machine and server may differ.
	clockTolerance = time.Minute
)

// trusted is what the server said of itself.
type trusted struct {
	ca      []byte // PEM encoded
	now     time.Time
	version string
}

// Trust makes sure that a server's certificate comes from the authority with
// the given hash, that the clocks agree, and that both speak nearly the same
// version of the API. It returns that authority, PEM encoded.
func Trust(ctx context.Context, server, caHash, version string) ([]byte, error) {
	u, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	known, err := trust(ctx, u, caHash)
	if err != nil {
		return nil, err
	}
	if err := checkClock(time.Now(), known.now); err != nil {
		return nil, err
	}
	return known.ca, checkVersion(version, known.version)
}

func parseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("server %q: must be a URL such as https://192.0.2.10:6443", server)
	}
	return u, nil
}

// trust connects to a server and makes sure that its certificate comes from the
// authority with the given hash. Nothing is sent before that.
func trust(ctx context.Context, server *url.URL, caHash string) (*trusted, error) {
	t := &trusted{}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // verified by hash instead
			VerifyConnection: func(state tls.ConnectionState) error {
				ca, err := verify(state.PeerCertificates, caHash, server.Hostname())
				if err == nil {
					t.ca = authoritiesOf(state.PeerCertificates, ca)
				}
				return err
			},
		},
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath("version").String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", server, err)
	}
	response, err := transport.RoundTrip(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("reach the server at %s: it doesn't answer within %s", server, askTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the server at %s: %w", server, err)
	}
	defer response.Body.Close()
	var info apiversion.Info
	if err := json.NewDecoder(io.LimitReader(response.Body, mostVersionBytes)).Decode(&info); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s for its version: it answers %s: is this an API server?", server, response.Status)
	}
	t.version = info.GitVersion
	if t.now, err = http.ParseTime(response.Header.Get("Date")); err != nil {
		return nil, fmt.Errorf("ask %s for the time: %w", server, err)
	}
	return t, nil
}

// authoritiesOf are those that a server shows, PEM encoded, the one that it is known by
// first: while that is replaced, other servers show certificates of another one.
func authoritiesOf(chain []*x509.Certificate, known *x509.Certificate) []byte {
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: known.Raw})
	for _, c := range chain[1:] {
		if c.IsCA && !c.Equal(known) {
			data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
	}
	return data
}

// verify finds the authority with the hash in the chain that a server showed,
// and checks that the server's own certificate comes from it, for that host.
// Times are not looked at: a clock that is off is reported as that.
func verify(chain []*x509.Certificate, caHash, host string) (*x509.Certificate, error) {
	if len(chain) == 0 {
		return nil, errors.New("the server shows no certificate")
	}
	for _, ca := range chain[1:] {
		if hash(ca) != caHash {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		// While an authority is replaced, the one of the token has signed the new one only.
		between := x509.NewCertPool()
		for _, c := range chain[1:] {
			between.AddCert(c)
		}
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: chain[0].NotBefore.Add(time.Second)})
		if err != nil {
			return nil, fmt.Errorf("the server's certificate: %w", err)
		}
		if err := chain[0].VerifyHostname(host); err != nil {
			return nil, fmt.Errorf("the server's certificate isn't for %s (start the server with --tls-san=%s): %w", host, host, err)
		}
		return ca, nil
	}
	return nil, fmt.Errorf("the server's certificate authority isn't the one in the token (%s): this is another cluster, or somebody in between", caHash)
}

// checkClock refuses a clock with which certificates wouldn't hold.
func checkClock(ours, server time.Time) error {
	off := ours.Sub(server).Round(10 * time.Second) // an HTTP date has no fractions, and took a while to come
	switch {
	case off > clockTolerance:
		return fmt.Errorf("this machine's clock is %s ahead of the server's (%s): set it right and join again", off, server.UTC().Format(time.RFC3339))
	case off < -clockTolerance:
		return fmt.Errorf("this machine's clock is %s behind the server's (%s): set it right and join again", -off, server.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkVersion refuses versions of the API that are more than one minor
// release apart.
func checkVersion(ours, server string) error {
	mine, err := version.ParseSemantic(ours)
	if err != nil {
		return fmt.Errorf("read own version %q: %w", ours, err)
	}
	theirs, err := version.ParseSemantic(server)
	if err != nil {
		return fmt.Errorf("read the server's version %q: %w", server, err)
	}
	if mine.Major() != theirs.Major() || mine.Minor() > theirs.Minor()+1 || theirs.Minor() > mine.Minor()+1 {
		older := "this machine's fairway"
		if mine.AtLeast(theirs) {
			older = "the server"
		}
		return fmt.Errorf("this fairway speaks the API %s and the server %s: more than one minor release apart; upgrade %s", ours, server, older)
	}
	return nil
}
