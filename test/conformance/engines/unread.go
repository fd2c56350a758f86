package engines

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// Clients that send a body that nobody reads: more than any buffer takes, and slowly.
const (
	unreadLength = 16 << 20
	unreadPart   = 256 << 10
	unreadPause  = 20 * time.Millisecond
)

// testUnread: a client that sends all of its body before it reads gets the answer,
// though the engine had it long before that and nobody reads the body.
func testUnread(t *testing.T, r *rig) {
	limited, denied, secret := to("p"), to("p"), to("p")
	limited.MaxBody = 1000
	denied.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	secret.BasicAuth = &model.BasicAuth{Realm: "r", Users: map[string]string{}}
	away := &model.Action{Redirect: &model.Redirect{Host: "other", Status: http.StatusFound}}
	rules := []*model.Rule{below("/limited", limited), below("/denied", denied), below("/secret", secret), below("/away", away), below("/empty", to("empty"))}
	e := r.endpoint("e", nil)
	roots := x509.NewCertPool()
	secured := &model.Listener{Name: "ns/gw/tls", Hostname: "h", Certificates: []*tls.Certificate{certificate(t, roots, "h")}}
	secured.SetHosts([]*model.Host{{Hostname: "h", Rules: rules}})
	wants := map[string]int{
		"/missing": http.StatusNotFound, "/empty": http.StatusServiceUnavailable, "/limited": http.StatusRequestEntityTooLarge,
		"/denied": http.StatusForbidden, "/secret": http.StatusUnauthorized, "/away": http.StatusFound,
	}
	for name, table := range map[string]*model.Table{
		"plain": table(rules, pool("p", e), &model.Pool{Name: "empty"}),
		"TLS":   tableOf(&model.Socket{Name: "ns/gw:443", Port: 443, TLS: true, Listeners: []*model.Listener{secured}}, pool("p", e), &model.Pool{Name: "empty"}),
	} {
		r.apply(table)
		var all sync.WaitGroup
		for path, want := range wants {
			for _, chunked := range []bool{false, true} {
				c := r.dialed(t, name == "TLS", roots)
				all.Go(func() {
					if got, err := sendAll(c, path, chunked); err != nil || got != want {
						t.Errorf("%s %s, chunked %v: answer %d, %v; want %d", name, path, chunked, got, err, want)
					}
				})
			}
		}
		all.Wait()
	}
}

func (r *rig) dialed(t *testing.T, secured bool, roots *x509.CertPool) net.Conn {
	t.Helper()
	var c net.Conn
	c, err := net.Dial("tcp", r.address().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if secured {
		c = tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "h"})
	}
	return c
}

// sendAll sends a request with a long body, and reads the answer once all is sent.
func sendAll(c net.Conn, path string, chunked bool) (status int, err error) {
	length := fmt.Sprint("Content-Length: ", unreadLength)
	if chunked {
		length = "Transfer-Encoding: chunked"
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", path, length); err != nil {
		return 0, err
	}
	part := strings.Repeat("x", unreadPart)
	if chunked {
		part = fmt.Sprintf("%x\r\n%s\r\n", unreadPart, part)
	}
	for range unreadLength / unreadPart {
		if _, err := io.WriteString(c, part); err != nil {
			return 0, err
		}
		time.Sleep(unreadPause)
	}
	if chunked {
		if _, err := io.WriteString(c, "0\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode, err
}
