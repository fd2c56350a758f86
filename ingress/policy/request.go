package policy

import (
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/fairway-net/fairway/ingress/model"
)

// Read returns a request as rules see it. isTrusted says that a trusted proxy sent it.
func Read(r *http.Request, isTrusted bool) model.Request {
	out := model.Request{
		TLS: r.TLS != nil, Method: r.Method, Host: HostOf(r.Host), RawQuery: r.URL.RawQuery, Header: r.Header,
	}
	out.Path, out.Other = Path(AsItCame(r.URL))
	if r.TLS != nil {
		out.ServerName = strings.ToLower(r.TLS.ServerName)
	}
	if isTrusted {
		out.Scheme = schemeOf(r.Header)
	}
	return out
}

// HostOf is the name in a Host header or an authority; an address of IPv6 has its brackets.
func HostOf(host string) string {
	if strings.IndexByte(host, ':') >= 0 {
		if _, port, err := net.SplitHostPort(host); err == nil {
			host = host[:len(host)-len(port)-1]
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Refused says why no rule is to see a request: it is none, or asks for a tunnel, or has
// two hosts. The status is 0 if it may be seen. Servers of HTTP/1.1 have put the host of
// an absolute URL in the place of the header's (RFC 9112, 3.2.2), so that there is one.
func Refused(r *http.Request) (status int, reason string) {
	switch hosts := r.Header["Host"]; {
	case r.Method == http.MethodConnect:
		return http.StatusMethodNotAllowed, "no tunnels are made"
	case len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host):
		return http.StatusBadRequest, "the host is another than the authority"
	case r.ProtoMajor >= 2 && (r.Host == "" || !httpguts.ValidHostHeader(r.Host)):
		return http.StatusBadRequest, "the authority is none"
	}
	return 0, ""
}
