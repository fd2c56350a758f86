package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

const (
	authTimeout = 10 * time.Second // of a question whether a request is let in
	sentFrom    = "fairway-gateway"
	maxDropped  = 64 << 10 // of an answer's body that nobody needs
)

// authorize asks whether a request is let in; 0 if it is.
func (x *exchange) authorize(w http.ResponseWriter, r *http.Request) (status int, reason string) {
	a := x.action.Auth
	if x.askedAgain {
		return http.StatusLoopDetected, "who is to say whether requests are let in asks that itself"
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	question, err := x.question(ctx, r, a)
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	var response *http.Response
	if a.Pool == "" {
		response, err = outside().RoundTrip(question) //nolint:bodyclose // drop does
	} else {
		response, err = x.askPool(a.Pool, question) //nolint:bodyclose // drop does
	}
	if err != nil {
		return http.StatusInternalServerError, fmt.Sprintf("%s doesn't say whether the request is let in: %v", a.URL, err)
	}
	drop(response)
	switch code := response.StatusCode; {
	case code >= 200 && code < 300:
		x.authorized, x.cookies = response.Header, response.Header["Set-Cookie"]
		return 0, ""
	case code == http.StatusUnauthorized && a.SignIn != "":
		w.Header().Set("Location", x.signIn(r, a))
		w.Header()["Set-Cookie"] = response.Header["Set-Cookie"]
		return http.StatusFound, "the client has to sign in"
	case code == http.StatusUnauthorized:
		w.Header()["Www-Authenticate"] = response.Header["Www-Authenticate"]
		return code, a.URL + " doesn't let the request in"
	case code == http.StatusForbidden:
		return code, a.URL + " doesn't let the request in"
	default:
		return http.StatusInternalServerError, fmt.Sprintf("%s doesn't say whether the request is let in: status %d", a.URL, code)
	}
}

// question is a request without its body, and what it was.
func (x *exchange) question(ctx context.Context, r *http.Request, a *model.Auth) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, a.Method, a.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("ask whether the request is let in: %w", err)
	}
	q.Header = r.Header.Clone()
	for _, name := range []string{"Content-Length", "Expect"} {
		q.Header.Del(name)
	}
	x.say(q.Header)
	for name, value := range map[string]string{
		"X-Original-Method": r.Method, "X-Original-Url": x.scheme() + "://" + r.Host + x.uri(),
		"X-Auth-Request-Redirect": x.uri(),
	} {
		q.Header.Set(name, value)
	}
	for _, h := range a.Request {
		q.Header.Set(h.Name, x.request.Expand(h.Value))
	}
	q.Header["X-Sent-From"] = []string{sentFrom} // no rule may hide that it asks itself
	return q, nil
}

func (x *exchange) scheme() string {
	if x.request.Scheme == "https" || x.request.Scheme == "" && x.request.TLS {
		return "https"
	}
	return "http"
}

// signIn is where a client is sent, and where it is to come back to.
func (x *exchange) signIn(r *http.Request, a *model.Auth) string {
	uri := x.uri()
	to := strings.NewReplacer(
		"$scheme", x.scheme(), "$host", x.request.Host, "$http_host", r.Host, "$best_http_host", r.Host,
		"$escaped_request_uri", url.QueryEscape(uri), "$request_uri", uri,
	).Replace(a.SignIn)
	if strings.Contains(to, "?"+a.Param+"=") || strings.Contains(to, "&"+a.Param+"=") {
		return to
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + url.QueryEscape(a.Param) + "=" + url.QueryEscape(x.scheme()+"://"+r.Host+uri)
}

// addAuthorized gives the backend what was said of the client. What clients say
// of that themselves isn't believed.
func (x *exchange) addAuthorized(h http.Header) {
	if x.action.Auth == nil {
		return
	}
	for _, name := range x.action.Auth.Headers {
		delete(h, name)
		if values := x.authorized[name]; len(values) > 0 {
			h[name] = slices.Clone(values)
		}
	}
}

// instead has another backend answer where the answer, or that there is none, is
// not to be handed on.
func (x *exchange) instead(r *http.Request, response *http.Response, err error) (*http.Response, error) {
	e := x.action.Errors
	if e == nil || r.Context().Err() != nil {
		return response, err
	}
	code := http.StatusBadGateway
	switch {
	case err == nil:
		code = response.StatusCode
	case errors.Is(err, errNoEndpoints):
		code = http.StatusServiceUnavailable
	case errors.Is(err, errTryTimeout):
		code = http.StatusGatewayTimeout
	}
	if !slices.Contains(e.Codes, code) {
		return response, err
	}
	method := http.MethodGet
	if r.Method == http.MethodHead {
		method = r.Method
	}
	q, failed := http.NewRequestWithContext(r.Context(), method, "http://errors/", nil)
	if failed != nil {
		return response, err
	}
	q.Host = x.request.Host
	q.Header["X-Code"] = []string{strconv.Itoa(code)}
	q.Header["X-Format"], q.Header["X-Original-Uri"] = []string{r.Header.Get("Accept")}, []string{x.uri()}
	for _, h := range e.Header {
		q.Header[h.Name] = []string{h.Value}
	}
	other, failed := x.askPool(e.Pool, q)
	if failed != nil {
		return response, err
	}
	if response != nil {
		drop(response)
	}
	return other, nil
}

// uri is the path and the query that the client asked for.
func (x *exchange) uri() string {
	if x.request.RawQuery == "" {
		return x.request.Path
	}
	return x.request.Path + "?" + x.request.RawQuery
}

// askPool asks an endpoint of a pool, or another one where nothing could be sent.
func (x *exchange) askPool(name string, q *http.Request) (*http.Response, error) {
	pool := x.engine.table.Load().Pools[name]
	if pool == nil || pool.Invalid != "" {
		return nil, fmt.Errorf("%w: %s", errBadPool, name)
	}
	transport := x.engine.upstreams.of(pool, false, 0)
	var failed []netip.AddrPort
	var last error
	for range maxTries {
		ep, ok := x.engine.pickers.pick(pool, x.client, "", failed)
		if !ok {
			break
		}
		out := q.WithContext(q.Context())
		target := *q.URL
		if out.Host == "" {
			out.Host = target.Host
		}
		target.Scheme, target.Host = "http", ep.String()
		if pool.TLS != nil {
			target.Scheme = "https"
		}
		out.URL = &target
		response, err := transport.RoundTrip(out)
		if err == nil {
			return response, nil
		}
		if last = err; !isUnsent(err) {
			break
		}
		failed = append(failed, ep)
	}
	return nil, cmp.Or(last, errNoEndpoints)
}

// drop ends an answer whose body nobody needs.
func drop(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxDropped)) // so that the connection can be used again
	_ = response.Body.Close()
}

// isThisMachines reports whether an address is one of this machine's.
func isThisMachines(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(list, func(one net.Addr) bool {
		p, err := netip.ParsePrefix(one.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// outside is the client for addresses that authors of Ingresses name. Addresses
// that are this machine's own, or its link's, can't be reached by it.
var outside = sync.OnceValue(func() *http.Transport {
	d := net.Dialer{Timeout: connectTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if a := to.Addr().Unmap(); a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() || isThisMachines(a) {
			return fmt.Errorf("%s is an address of this machine's own or of its link", a)
		}
		return nil
	}}
	return &http.Transport{
		DialContext: d.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: upstreamIdle, TLSHandshakeTimeout: headerTimeout, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHeaders,
	}
})
