package native

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"

	"github.com/fairway-net/fairway/ingress/model"
)

// nobody reads what ReverseProxy would log: failed tells it all.
var nobody = log.New(io.Discard, "", 0)

// rewrite makes the request that an endpoint gets.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.Host = p.In.Host
	p.SetXForwarded()
	out.Header.Set("X-Forwarded-For", x.client.String())
	if contains(x.engine.options.Trusted, peerOf(p.In)) {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v := p.In.Header.Get(name); v != "" {
				out.Header.Set(name, v)
			}
		}
	}
	x.addAuthorized(out.Header)
	path := x.request.Path
	for _, r := range []*model.Rewrite{x.action.Rewrite, x.backend.Rewrite} {
		if r == nil {
			continue
		}
		if r.Host != "" {
			out.Host = r.Host
		}
		if r.Path != nil {
			path = r.Path.Apply(path, &x.decision.Rule.Match)
		}
	}
	out.URL.Path, out.URL.RawPath, out.URL.RawQuery = model.Unescape(path), path, p.In.URL.RawQuery
	for _, e := range []*model.HeaderEdit{&x.action.Request, &x.backend.Request} {
		e.Apply(out.Header)
		if host := out.Header["Host"]; len(host) > 0 {
			out.Host = host[0]
			delete(out.Header, "Host")
		}
	}
	if _, given := out.Header["User-Agent"]; !given {
		out.Header["User-Agent"] = nil // net/http would add its own
	}
}

// modify makes the answer that the client gets.
func (x *exchange) modify(r *http.Response) error {
	if c := x.action.CORS; c != nil {
		allowed(r.Header, x.request.Header, c)
	}
	if c := x.backend.CORS; c != nil {
		allowed(r.Header, x.request.Header, c)
	}
	x.action.Response.Apply(r.Header)
	x.backend.Response.Apply(r.Header)
	if a := x.action.Affinity; a != nil && !a.ByClient && x.cookie != endpointID(x.endpoint) {
		r.Header.Add("Set-Cookie", a.SetCookie(endpointID(x.endpoint)))
	}
	for _, cookie := range x.cookies {
		r.Header.Add("Set-Cookie", cookie)
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		x.last(r.Header)
	}
	x.announce(r.Header)
	return nil
}
