package native

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// forwarded notes where a request comes from: the client, the host that it asked
// for, and how. Trusted proxies know better. The headers still are the client's.
func (x *exchange) forwarded(r *http.Request) {
	x.from = [3]string{x.clientText(r), r.Host, x.scheme()}
	if x.trusted {
		x.from[1] = cmp.Or(r.Header.Get("X-Forwarded-Host"), r.Host)
	}
}

// say tells in a request where it comes from.
func (x *exchange) say(h http.Header) {
	h["X-Forwarded-For"], h["X-Forwarded-Host"], h["X-Forwarded-Proto"], h["X-Real-Ip"] = x.from[0:1:1], x.from[1:2:2], x.from[2:3:3], x.from[0:1:1]
}

// isOwn reports whether a header of the request is the rule's to say.
func (x *exchange) isOwn(name string) bool {
	is := func(h model.Header) bool { return h.Name == name }
	for _, e := range []*model.HeaderEdit{&x.action.Request, &x.backend.Request} {
		if slices.ContainsFunc(e.Set, is) || slices.ContainsFunc(e.Add, is) || slices.Contains(e.Remove, name) {
			return true
		}
	}
	return x.action.Auth != nil && slices.Contains(x.action.Auth.Headers, name)
}

// clientText is the client's address, which is most often there as text already.
func (x *exchange) clientText(r *http.Request) string {
	if i := strings.LastIndexByte(r.RemoteAddr, ':'); i > 0 && r.RemoteAddr[0] != '[' && x.client.Is4() && !x.trusted {
		return r.RemoteAddr[:i]
	}
	return x.client.String()
}

// edit changes a request as the rule says.
func (x *exchange) edit(out *http.Request) {
	x.say(out.Header)
	policy.DropFolded(out.Header, x.isOwn)
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
			out.URL.RawQuery = r.Path.ApplyQuery(out.URL.RawQuery, path, &x.decision.Rule.Match)
			path, _ = policy.Path(r.Path.Apply(path, &x.decision.Rule.Match))
		}
	}
	policy.SetPath(out.URL, path)
	if x.trailers { // RFC 9110, 10.1.4: each says so for itself
		out.Header["Te"] = []string{"trailers"}
	}
	for _, e := range []*model.HeaderEdit{&x.action.Request, &x.backend.Request} {
		policy.Edit(out.Header, e)
		if host := out.Header["Host"]; len(host) > 0 {
			out.Host = host[0]
			delete(out.Header, "Host")
		}
	}
	if _, given := out.Header["User-Agent"]; !given {
		out.Header["User-Agent"] = nil // net/http would add its own
	}
}

// isThere reports whether the endpoint that the client stays with is one of the pool.
func (x *exchange) isThere() bool {
	return x.cookie != "" && slices.ContainsFunc(x.pool.Endpoints, func(e model.Endpoint) bool { return endpointID(e.Addr) == x.cookie })
}

// isFine reports whether an answer is one to which nginx adds headers.
func isFine(status int) bool {
	switch status {
	case 200, 201, 204, 206, 301, 302, 303, 304, 307, 308:
		return true
	}
	return false
}

// modify makes the answer that the client gets.
func (x *exchange) modify(r *http.Response) error {
	if c := x.action.CORS; c != nil {
		allowed(r.Header, x.request.Header, c)
	}
	if c := x.backend.CORS; c != nil {
		allowed(r.Header, x.request.Header, c)
	}
	policy.Edit(r.Header, &x.action.Response)
	policy.Edit(r.Header, &x.backend.Response)
	if a := x.action.Affinity; a != nil && !a.ByClient && x.cookie != endpointID(x.endpoint) && !(a.Keep && x.isThere()) {
		if id := endpointID(x.endpoint); a.Header != "" {
			r.Header[a.Header] = []string{id}
		} else {
			named := *a
			if a.Known && policy.ReadsNoneAsStrict(x.request.Header.Get("User-Agent")) {
				named.SameSite = ""
			}
			if cookie := named.SetCookie(id); cookie != "" { // of a name that a cookie can have
				r.Header.Add("Set-Cookie", cookie)
			}
		}
	}
	if a := x.action.Auth; len(x.cookies) > 0 && (a.Cookies || isFine(r.StatusCode)) {
		r.Header["Set-Cookie"] = append(r.Header["Set-Cookie"], x.cookies...)
	}
	if r.StatusCode != http.StatusSwitchingProtocols {
		x.last(r.Header)
	}
	x.announce(r.Header)
	return nil
}
