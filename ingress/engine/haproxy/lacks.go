package haproxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// Lacks are what haproxy can't do, for people.
func Lacks() []string {
	return []string{
		"HTTP/3, and certificate authorities' challenges by TLS (tls-alpn-01)",
		"clients' certificates that are asked for and may be any (AllowInsecureFallback): clients are asked for none",
		"mirrors of requests",
		"variables in redirects, queries in rewrite-target, and what proxy-cookie-* and proxy-redirect-* rewrite in answers",
		"a timeout of the whole request (timeouts.request); one of each try there is",
		"limits of requests per second and of connections per client",
		"other servers that say who is let in (auth-url), and backends that answer in the place of others' errors (custom-http-errors)",
		"limits of how fast answers are sent (limit-rate), names that clients' certificates must have (auth-tls-match-cn), one of several ways to be let in (satisfy: any)",
		"passwords that are not written as {SHA}: bcrypt would hold up all other requests",
		"a pause between tries (retry.backoff), and tries after answers other than 401, 403, 404, 408, 425, 500, 501, 502, 503 and 504",
		"certificates of endpoints that are known by several names or by a URI",
		"trailers of requests that are left out: all that clients send pass, also X-Forwarded-For and headers that rules set; endpoints must not take them for headers",
		fmt.Sprintf("regular expressions of more than %d steps", maxProgram),
	}
}

// retried are the answers after which haproxy can try again.
var retried = []int{401, 403, 404, 408, 425, 500, 501, 502, 503, 504}

// LackingAction says what of an action haproxy can't do; "" if it can do it all.
func LackingAction(a *model.Action) string {
	mirrors := len(a.Mirrors)
	for i := range a.Backends {
		mirrors += len(a.Backends[i].Mirrors)
	}
	switch {
	case mirrors > 0:
		return "haproxy can't mirror requests"
	case a.Redirect != nil && a.Redirect.Variables:
		return "haproxy puts no variables into redirects"
	case a.Rewrite != nil && a.Rewrite.Path != nil && a.Rewrite.Path.Query != "":
		return "haproxy doesn't rewrite queries"
	case len(a.Response.Replace) > 0:
		return "haproxy doesn't rewrite cookies and locations of answers"
	case a.Timeout > 0:
		return "haproxy has no timeout of the whole request"
	case a.Limit != nil:
		return "haproxy has no such limits per client"
	case a.Auth != nil:
		return "haproxy asks no other server who is let in"
	case a.AnyOf && (a.Allow != nil || len(a.Deny) > 0) && a.BasicAuth != nil:
		return "haproxy asks for all that lets clients in, not for any of it"
	case a.Rate != nil:
		return "haproxy doesn't send answers at a rate"
	case a.Identity != nil && a.Identity.Subject != nil:
		return "haproxy doesn't look at the names in clients' certificates"
	case a.Errors != nil:
		return "haproxy has no other backend answer in the place of an error"
	}
	if a.BasicAuth != nil {
		for _, hash := range a.BasicAuth.Users {
			if !strings.HasPrefix(hash, "{SHA}") {
				return "haproxy checks passwords that are written as {SHA} only"
			}
		}
	}
	if r := a.Retry; r != nil {
		if r.Backoff > 0 {
			return "haproxy makes no pause between tries"
		}
		for _, code := range r.Codes {
			if !slices.Contains(retried, code) {
				return fmt.Sprintf("haproxy doesn't try again after %d (%s)", code, http.StatusText(code))
			}
		}
	}
	return ""
}

// Lacking says what of a rule haproxy can't do; "" if it can do it all.
func Lacking(r *model.Rule) string {
	if why := LackingAction(r.Action); why != "" {
		return why
	}
	return LackingMatch(&r.Match)
}

// LackingMatch says what of a match haproxy can't do; "" if it can do it all.
func LackingMatch(m *model.Match) string {
	if m.Regexp != nil {
		if _, err := compileRegexp(m.Regexp); err != nil {
			return err.Error()
		}
	}
	for _, list := range [][]model.ValueMatch{m.Headers, m.Query} {
		for i := range list {
			if list[i].Regexp == nil {
				continue
			}
			if _, err := compileRegexp(list[i].Regexp); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// LackingPool says why endpoints can't be spoken to as a pool has it; "" if they can.
func LackingPool(p *model.Pool) string {
	t := p.TLS
	switch {
	case t == nil || t.Insecure || p.Invalid != "":
		return ""
	case len(t.URIs) > 0 || len(t.Names) > 1:
		return "haproxy knows an endpoint by one name only"
	case !isHostname(nameOf(t)):
		return "haproxy knows an endpoint by a hostname only"
	case t.Roots != nil && len(t.Authorities) == 0:
		return "there is no authority"
	}
	return ""
}

// nameOf is the name that an endpoint's certificate must have.
func nameOf(t *model.BackendTLS) string {
	if len(t.Names) == 1 {
		return t.Names[0]
	}
	return t.ServerName
}

func isHostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
