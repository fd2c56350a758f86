package compile

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/compile/host"
	"github.com/fairway-net/fairway/ingress/model"
)

// Support is what becomes of an annotation.
type Support uint8

// What may become of an annotation.
const (
	Works     Support = iota // it does what it did
	NoNeed                   // what it sets there is nothing of here: answers are the same with and without it
	Otherwise                // what it asks for is not so; an Event says how it is
	Refused                  // it is left out, and an Event names another way
	Closes                   // it protects, and can't be done: an Event says so, and requests get 500
)

// String names it, as documents do.
func (s Support) String() string {
	return [...]string{"works", "nothing to set", "otherwise", "refused", "closes"}[s]
}

// Annotation is what is known of an annotation of ingress-nginx.
type Annotation struct {
	Name    string // without the prefix
	Value   string // how it is read
	Support Support
	Effect  string // what it does, or what is done instead
	HAProxy string // what the haproxy engine does otherwise; "" is nothing

	Protects bool // requests get 500 where the value can't be read
	read     reader
	alone    string // the annotation that it is read with, without which it says nothing; "" if it is read alone
}

// How values are read.
const (
	aBool    = "`true` or `false`"
	aNumber  = "a whole number"
	aSize    = "a size: `8m`"
	seconds1 = "seconds: `60`, `60s`"
	aName    = "a name"
	ranges   = "addresses and ranges, with commas"
	noLimits = "none: rules with limits answer 500"
	noAuth   = "none: rules with auth-url answer 500"
	noEdits  = "none: such rules answer 500"
)

// Annotations are all that ingress-nginx documents, and some that it had before.
func Annotations() []Annotation { return table }

func limit(f func(l *model.Limit, n int)) reader {
	return number(func(a *annotations, n int) { a.base.Limit = limitOf(a.base.Limit); f(a.base.Limit, n) })
}

func number(set func(*annotations, int)) reader {
	return func(r *reading, t string) error { return readInt(t, func(n int) { set(r.a, n) }) }
}

func boolean(set func(*annotations, bool)) reader {
	return func(r *reading, t string) error {
		on := false
		if err := readBool(&on, t); err != nil {
			return err
		}
		set(r.a, on)
		return nil
	}
}

// nothing reads a value that is checked and then of no use.
func nothing(check func(string) error) reader {
	return func(_ *reading, t string) error { return check(t) }
}

func isBool(t string) error   { on := false; return readBool(&on, t) }
func isNumber(t string) error { return readInt(t, func(int) {}) }
func isSize(t string) error   { _, err := size(t); return err }
func isText(string) error     { return nil }

var table = []Annotation{
	{Name: "app-root", Value: "a path", Effect: "requests for `/` are redirected there (302)", read: readAppRoot},
	{Name: "affinity", Value: "`cookie`", Effect: "a client stays with an endpoint, by a cookie of the rule's path", read: readAffinity},
	{Name: "affinity-mode", Value: "`balanced` or `persistent`", Effect: "sessions never move while their endpoint is there, with either", alone: "affinity", read: nothing(oneOf("balanced", "persistent"))},
	{Name: "affinity-canary-behavior", Value: "`sticky` or `legacy`", Effect: "a client that stays with an endpoint stays with the canary, or without; with `legacy`, its share is drawn for each request", alone: "affinity", read: nothing(oneOf("sticky", "legacy"))},
	{Name: "session-cookie-name", Value: aName, Effect: "of the cookie; INGRESSCOOKIE without it", alone: "affinity"},
	{Name: "session-cookie-path", Value: "a path", Effect: "of the cookie", alone: "affinity"},
	{Name: "session-cookie-domain", Value: "a domain", Effect: "of the cookie", alone: "affinity"},
	{Name: "session-cookie-samesite", Value: "`None`, `Lax` or `Strict`", Effect: "of the cookie", alone: "affinity", read: nothing(oneOf("None", "Lax", "Strict"))},
	{Name: "session-cookie-secure", Value: aBool, Effect: "the cookie is sent over https only", alone: "affinity", read: nothing(isBool)},
	{Name: "session-cookie-max-age", Value: "seconds", Effect: "how long browsers keep the cookie", alone: "affinity", read: nothing(isNumber)},
	{Name: "session-cookie-expires", Value: "seconds", Effect: "as session-cookie-max-age, which has precedence", alone: "affinity", read: nothing(isNumber)},
	{Name: "session-cookie-change-on-failure", Value: aBool, Effect: "a client whose request another endpoint had to answer stays with that one; without it, it goes back", HAProxy: "it always stays with that one", alone: "affinity", read: nothing(isBool)},
	{Name: "session-cookie-conditional-samesite-none", Value: aBool, Effect: "browsers that read `SameSite=None` as Strict get none", HAProxy: "`SameSite=None` is sent to all", alone: "affinity", read: nothing(isBool)},

	{Name: "auth-type", Value: "`basic`", Effect: "a name and a password of the Secret are asked for; digest answers 500", HAProxy: "passwords as {SHA} only", Protects: true, read: readBasic},
	{Name: "auth-secret", Value: "a Secret of the Ingress's namespace", Effect: "names and passwords", alone: "auth-type", Protects: true},
	{Name: "auth-secret-type", Value: "`auth-file` or `auth-map`", Effect: "one file as htpasswd writes it, or a key for each name", alone: "auth-type", Protects: true, read: nothing(oneOf("auth-file", "auth-map"))},
	{Name: "auth-realm", Value: "a text", Effect: "what browsers show", alone: "auth-type"},
	{Name: "auth-tls-secret", Value: "`namespace/name` of the Ingress's namespace", Effect: "clients must have a certificate of an authority in `ca.crt`; of a host, what its owner says holds", Protects: true, read: readClients},
	{Name: "auth-tls-verify-client", Value: "`on`, `off`, `optional_no_ca`", Effect: "`optional_no_ca` lets in who has none or any; `optional` answers 500", alone: "auth-tls-secret", Protects: true},
	{Name: "auth-tls-verify-depth", Value: aNumber, Support: Otherwise, Effect: "chains of any length to the authority are good", alone: "auth-tls-secret", Protects: true, read: nothing(isNumber)},
	{Name: "auth-tls-error-page", Value: "an address", Support: Refused, Effect: "without a certificate there is no connection, and so no page", alone: "auth-tls-secret"},
	{Name: "auth-tls-pass-certificate-to-upstream", Value: aBool, Effect: "endpoints get the certificate, as header `ssl-client-cert` (PEM, escaped); with auth-tls-secret, they get `ssl-client-verify`, `ssl-client-subject-dn` and `ssl-client-issuer-dn` in any case", alone: "auth-tls-secret", Protects: true, read: nothing(isBool)},
	{Name: "auth-tls-match-cn", Value: "a regular expression (RE2)", Effect: "the subject of clients' certificates must match (`CN=…`), or they get 403; of a host, what its owner says holds", HAProxy: noEdits, alone: "auth-tls-secret", Protects: true},
	{Name: "auth-url", Value: "an address, with `$host`", Effect: "another server says who is let in", HAProxy: noAuth, Protects: true, read: readAuth},
	{Name: "auth-method", Value: "`GET`, `HEAD` or `POST`", Effect: "of the question", HAProxy: noAuth, alone: "auth-url", Protects: true},
	{Name: "auth-signin", Value: "an address with variables", Effect: "where clients go whose answer is 401", HAProxy: noAuth, alone: "auth-url", Protects: true},
	{Name: "auth-signin-redirect-param", Value: aName, Effect: "parameter of that address with where the client wanted to; `rd` without it", HAProxy: noAuth, alone: "auth-url"},
	{Name: "auth-response-headers", Value: "names of headers", Effect: "of the answer, that endpoints get; clients' own are dropped", HAProxy: noAuth, alone: "auth-url", Protects: true},
	{Name: "auth-request-redirect", Value: "a text with variables", Effect: "header X-Auth-Request-Redirect of the question", HAProxy: noAuth, alone: "auth-url", Protects: true},
	{Name: "auth-proxy-set-headers", Value: "a ConfigMap, `namespace/name` of the Ingress's namespace", Effect: "headers of the question; values may have variables", HAProxy: noAuth, alone: "auth-url", Protects: true},
	{Name: "auth-cache-key", Value: "a text", Support: Otherwise, Effect: "every request is asked for; nothing is cached", alone: "auth-url", read: nothing(isText)},
	{Name: "auth-cache-duration", Value: "codes and times", Support: Otherwise, Effect: "every request is asked for; nothing is cached", alone: "auth-url", read: nothing(isText)},
	{Name: "auth-keepalive", Value: aNumber, Support: NoNeed, Effect: "connections are kept and shared", alone: "auth-url", read: nothing(isNumber)},
	{Name: "auth-keepalive-share-vars", Value: aBool, Support: NoNeed, Effect: "connections are kept and shared", alone: "auth-url", read: nothing(isBool)},
	{Name: "auth-keepalive-requests", Value: aNumber, Support: NoNeed, Effect: "connections are kept and shared", alone: "auth-url", read: nothing(isNumber)},
	{Name: "auth-keepalive-timeout", Value: seconds1, Support: NoNeed, Effect: "connections are kept and shared", alone: "auth-url", read: nothing(isNumber)},
	{Name: "auth-always-set-cookie", Value: aBool, Effect: "cookies of that server are the client's whatever the endpoint answers; without it, with answers that aren't errors", HAProxy: noAuth, alone: "auth-url", read: nothing(isBool)},
	{Name: "auth-snippet", Value: "nginx configuration", Support: Closes, Effect: "snippets are never run; use auth-proxy-set-headers"},
	{Name: "enable-global-auth", Value: aBool, Support: NoNeed, Effect: "there is none for all Ingresses", read: nothing(isBool)},
	{Name: "satisfy", Value: "`all` or `any`", Effect: "with `any`, a client of the list needs no name and password, nor that server's leave", HAProxy: "none: rules with `any` of a list and a password answer 500", Protects: true, read: readSatisfy},

	{Name: "whitelist-source-range", Value: ranges, Effect: "clients that are let in", Protects: true, read: prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Allow })},
	{Name: "allowlist-source-range", Value: ranges, Effect: "clients that are let in", Protects: true, read: prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Allow })},
	{Name: "denylist-source-range", Value: ranges, Effect: "clients that are not", Protects: true, read: prefixes(func(a *annotations) *[]netip.Prefix { return &a.base.Deny })},
	{Name: "limit-connections", Value: aNumber, Effect: "requests of a client for all paths at a time; one too many gets 503", HAProxy: noLimits, Protects: true, read: limit(func(l *model.Limit, n int) { l.Connections = n })},
	{Name: "limit-rps", Value: aNumber, Effect: "requests of a client for all paths in a second", HAProxy: noLimits, Protects: true, read: limit(func(l *model.Limit, n int) { l.PerSecond = float64(n) })},
	{Name: "limit-rpm", Value: aNumber, Effect: "requests of a client for all paths in a minute; with limit-rps, the lower one counts", HAProxy: noLimits, Protects: true, read: number(func(a *annotations, n int) { a.perMinute = n })},
	{Name: "limit-burst-multiplier", Value: aNumber, Effect: "how many times the rate may come at once; 5 without it", HAProxy: noLimits, Protects: true, read: number(func(a *annotations, n int) { a.burst = n })},
	{Name: "limit-allowlist", Value: ranges, Effect: "clients without limits", HAProxy: noLimits, Protects: true, read: prefixes(func(a *annotations) *[]netip.Prefix { return &a.unlimited })},
	{Name: "limit-whitelist", Value: ranges, Effect: "clients without limits", HAProxy: noLimits, Protects: true, read: prefixes(func(a *annotations) *[]netip.Prefix { return &a.unlimited })},
	{Name: "limit-rate", Value: "kilobytes in a second", Effect: "how fast an answer is sent", HAProxy: noEdits, Protects: true, read: number(func(a *annotations, n int) { a.rate.PerSecond = int64(n) << 10 })},
	{Name: "limit-rate-after", Value: "kilobytes", Effect: "what of an answer is sent at once", HAProxy: noEdits, alone: "limit-rate", read: number(func(a *annotations, n int) { a.rate.After = int64(n) << 10 })},
	{Name: "enable-modsecurity", Value: aBool, Support: Closes, Effect: "there is no ModSecurity; put one before the Gateway", read: closeIf("true")},
	{Name: "enable-owasp-core-rules", Value: aBool, Support: Closes, Effect: "there is no ModSecurity; put one before the Gateway", read: closeIf("true")},
	{Name: "modsecurity-snippet", Value: "its configuration", Support: Closes, Effect: "there is no ModSecurity; put one before the Gateway"},
	{Name: "modsecurity-transaction-id", Value: "a text", Support: Refused, Effect: "there is no ModSecurity"},

	{Name: "backend-protocol", Value: "`HTTP`, `HTTPS`, `GRPC`, `GRPCS`, `AUTO_HTTP`", Effect: "how endpoints are spoken to; FCGI is refused", read: readProtocol},
	{Name: "canary", Value: aBool, Effect: "the Ingress gets a part of the requests of another one of its namespace, and is that one in all else", read: readCanary},
	{Name: "canary-by-header", Value: aName, Effect: "`always` gets, `never` doesn't", alone: "canary"},
	{Name: "canary-by-header-value", Value: "a text", Effect: "instead of `always`", alone: "canary"},
	{Name: "canary-by-header-pattern", Value: "a regular expression (RE2)", Effect: "instead of `always`", alone: "canary"},
	{Name: "canary-by-cookie", Value: aName, Effect: "`always` gets, `never` doesn't", alone: "canary"},
	{Name: "canary-weight", Value: aNumber, Effect: "share of all other requests", alone: "canary"},
	{Name: "canary-weight-total", Value: aNumber, Effect: "what the weight is a share of; 100 without it", alone: "canary"},

	{Name: "enable-cors", Value: aBool, Effect: "scripts of other origins may ask; preflights are answered before anything is checked", read: readCORS},
	{Name: "cors-allow-origin", Value: "origins, with commas", Effect: "`*` without it", alone: "enable-cors"},
	{Name: "cors-allow-methods", Value: "methods, with commas", Effect: "what scripts may ask with", alone: "enable-cors"},
	{Name: "cors-allow-headers", Value: "headers, with commas", Effect: "what scripts may send", alone: "enable-cors"},
	{Name: "cors-expose-headers", Value: "headers, with commas", Effect: "what scripts may see", alone: "enable-cors"},
	{Name: "cors-allow-credentials", Value: aBool, Effect: "scripts may send cookies", alone: "enable-cors", read: nothing(isBool)},
	{Name: "cors-max-age", Value: "seconds", Effect: "how long browsers remember; 1728000 without it", alone: "enable-cors", read: nothing(isNumber)},

	{Name: "custom-http-errors", Value: "codes, with commas", Effect: "the default backend answers in their place", HAProxy: "none: such rules answer 500", read: readErrors},
	{Name: "default-backend", Value: "a Service of the Ingress's namespace", Effect: "answers where there is no endpoint, and for custom-http-errors", read: readFallback},
	{Name: "disable-proxy-intercept-errors", Value: aBool, Effect: "custom-http-errors is left out", read: boolean(func(a *annotations, on bool) { a.keepErrors = on })},
	{Name: "custom-headers", Value: "a ConfigMap, `namespace/name` of the Ingress's namespace", Effect: "headers that all answers get", read: readCustomHeaders},
	{Name: "x-forwarded-prefix", Value: "a text", Effect: "header X-Forwarded-Prefix that endpoints get", read: readForwardedPrefix},
	{Name: "upstream-vhost", Value: "a host", Effect: "the Host that endpoints are asked for", read: readHost},
	{Name: "connection-proxy-header", Value: "`keep-alive`", Support: NoNeed, Effect: "connections to endpoints are kept", read: nothing(oneOf("keep-alive"))},

	{Name: "force-ssl-redirect", Value: aBool, Effect: "redirects to https (308), without a certificate too", read: readRedirect(host.Always, host.Unsaid)},
	{Name: "ssl-redirect", Value: aBool, Effect: "redirects to https (308) where the host has a certificate; `true` without it", read: readRedirect(host.WithTLS, host.Never)},
	{Name: "preserve-trailing-slash", Value: aBool, Support: NoNeed, Effect: "redirects to https keep the path as it is", read: nothing(isBool)},
	{Name: "from-to-www-redirect", Value: aBool, Effect: "the name with `www.`, or without, is redirected to the host (308)", read: boolean(func(a *annotations, on bool) { a.www = on })},
	{Name: "permanent-redirect", Value: "an http or https address, or a path, with variables", Effect: "the answer to all requests (301)", HAProxy: "without variables", read: redirectTo(http.StatusMovedPermanently)},
	{Name: "permanent-redirect-code", Value: "300 to 308", Effect: "instead of 301", alone: "permanent-redirect", read: readRedirectCode},
	{Name: "temporal-redirect", Value: "an http or https address, or a path, with variables", Effect: "the answer to all requests (302); before permanent-redirect", HAProxy: "without variables", read: redirectTo(http.StatusFound)},
	{Name: "temporal-redirect-code", Value: "300 to 308", Effect: "instead of 302", alone: "temporal-redirect", read: readRedirectCode},
	{Name: "relative-redirects", Value: aBool, Effect: "redirects to a path name no host", read: boolean(readRelative)},
	{Name: "use-port-in-redirects", Value: aBool, Support: NoNeed, Effect: "redirects name the port that clients connect to, if it isn't the scheme's", read: nothing(isBool)},
	{Name: "rewrite-target", Value: "a path with groups, and a query", Effect: "what endpoints are asked for; the request's query follows", HAProxy: "without a query", read: readRewrite},
	{Name: "use-regex", Value: aBool, Effect: "paths are regular expressions (RE2), in any case, and so are all others of the host", read: boolean(func(a *annotations, on bool) { a.regexp = a.regexp || on })},
	{Name: "enable-rewrite-log", Value: aBool, Support: Otherwise, Effect: "`fairway explain URL` says what becomes of a request", read: otherwiseIf("true", isBool)},
	{Name: "server-alias", Value: "hostnames, with commas", Effect: "other names of the host, perhaps `*.` for their first label; other patterns are refused. A name is the oldest Ingress's that gives it", read: readAlias},
	{Name: "ssl-passthrough", Value: aBool, Effect: "TLS goes on to the endpoints of path `/` as it is", read: boolean(func(a *annotations, on bool) { a.passthrough = on })},
	{Name: "ssl-ciphers", Value: "names", Support: Otherwise, Effect: "Go's list of ciphers holds, which has no weak ones", read: nothing(isText)},
	{Name: "ssl-prefer-server-ciphers", Value: aBool, Support: NoNeed, Effect: "the server's order always holds", read: nothing(isBool)},

	{Name: "proxy-body-size", Value: aSize, Effect: "the largest body; 0 is any", Protects: true, read: readBodySize},
	{Name: "proxy-connect-timeout", Value: seconds1, Effect: "for a connection to one endpoint", read: seconds(func(a *annotations) *time.Duration { return &a.base.ConnectTimeout })},
	{Name: "proxy-read-timeout", Value: seconds1, Effect: "between two parts of an answer", read: seconds(func(a *annotations) *time.Duration { return &a.readTimeout })},
	{Name: "proxy-send-timeout", Value: seconds1, Effect: "between two parts of a request; the longer one of the two counts for both", read: seconds(func(a *annotations) *time.Duration { return &a.sendTimeout })},
	{Name: "proxy-next-upstream", Value: "conditions of nginx", Effect: "after which another endpoint is asked; requests that may do harm twice only if nothing of them was sent, unless non_idempotent is said", HAProxy: "codes that it can try again after", read: readNextUpstream},
	{Name: "proxy-next-upstream-tries", Value: aNumber, Effect: "how many endpoints are asked; 3 without it, 16 with 0", read: readNextUpstream},
	{Name: "proxy-next-upstream-timeout", Value: seconds1, Effect: "after which no other endpoint is asked; 0 is none", HAProxy: "tries are bounded by number alone", read: readNextUpstream},
	{Name: "proxy-http-version", Value: "`1.1`", Support: NoNeed, Effect: "endpoints are spoken to in HTTP/1.1", read: nothing(oneOf("1.1"))},
	{Name: "proxy-cookie-domain", Value: "`off`, or two domains", Effect: "the Domain of endpoints' cookies is replaced", HAProxy: noEdits, read: readCookies("Domain")},
	{Name: "proxy-cookie-path", Value: "`off`, or two paths", Effect: "what the Path of endpoints' cookies begins with is replaced", HAProxy: noEdits, read: readCookies("Path")},
	{Name: "proxy-redirect-from", Value: "`off`, or what a Location begins with", Effect: "is replaced by proxy-redirect-to", HAProxy: noEdits, read: readLocation},
	{Name: "proxy-redirect-to", Value: "a text", Effect: "what it begins with then", HAProxy: noEdits, alone: "proxy-redirect-from"},
	{Name: "proxy-request-buffering", Value: "`on` or `off`", Support: NoNeed, Effect: "bodies are passed on as they come", read: nothing(oneOf("on", "off"))},
	{Name: "proxy-buffering", Value: "`on` or `off`", Support: NoNeed, Effect: "bodies are passed on as they come", read: nothing(oneOf("on", "off"))},
	{Name: "proxy-buffer-size", Value: aSize, Support: NoNeed, Effect: "an answer's head may have 1 MiB", read: nothing(isSize)},
	{Name: "proxy-buffers-number", Value: aNumber, Support: NoNeed, Effect: "bodies are passed on as they come", read: nothing(isNumber)},
	{Name: "proxy-busy-buffers-size", Value: aSize, Support: NoNeed, Effect: "bodies are passed on as they come", read: nothing(isSize)},
	{Name: "proxy-max-temp-file-size", Value: aSize, Support: NoNeed, Effect: "there are no temporary files", read: nothing(isSize)},
	{Name: "client-body-buffer-size", Value: aSize, Support: NoNeed, Effect: "bodies are passed on as they come", read: nothing(isSize)},
	{Name: "proxy-ssl-secret", Value: "`namespace/name` of the Ingress's namespace", Effect: "our certificate for endpoints, and the authority of theirs (`ca.crt`)", Protects: true, read: readBackendTLS},
	{Name: "proxy-ssl-verify", Value: "`on` or `off`", Effect: "endpoints' certificates must be of the authority; `off` without it", Protects: true, read: readBackendTLS},
	{Name: "proxy-ssl-name", Value: "a name", Effect: "that endpoints are asked for and must have", Protects: true, read: readBackendTLS},
	{Name: "proxy-ssl-server-name", Value: "`on` or `off`", Support: NoNeed, Effect: "endpoints are told the name, if there is one", read: nothing(oneOf("on", "off"))},
	{Name: "proxy-ssl-protocols", Value: "names", Support: Otherwise, Effect: "TLS 1.2 and 1.3 are spoken", read: otherwiseUnlessTLS},
	{Name: "proxy-ssl-ciphers", Value: "names", Support: Otherwise, Effect: "Go's list of ciphers holds, which has no weak ones", read: nothing(isText)},
	{Name: "proxy-ssl-verify-depth", Value: aNumber, Support: Otherwise, Effect: "chains of any length to the authority are good", read: nothing(isNumber)},
	{Name: "service-upstream", Value: aBool, Effect: "the Service's cluster IP is asked, not its endpoints", read: boolean(func(a *annotations, on bool) { a.clusterIP = on })},
	{Name: "load-balance", Value: "`round_robin` or `ewma`", Effect: "`ewma` asks the endpoint with the fewest requests", read: readLoadBalance},
	{Name: "upstream-hash-by", Value: "`$binary_remote_addr` or `$remote_addr`", Effect: "a client's address says which endpoint; other keys are refused", read: readHashBy},
	{Name: "upstream-hash-by-subset", Value: aBool, Support: Otherwise, Effect: "one endpoint for each key, not a few", read: otherwiseIf("true", isBool)},
	{Name: "upstream-hash-by-subset-size", Value: aNumber, Support: Otherwise, Effect: "one endpoint for each key, not a few", read: nothing(isNumber)},
	{Name: "mirror-target", Value: "a Service's address in DNS, with `$request_uri` behind it", Effect: "gets a copy of each request; other addresses are refused, and another namespace's Service unless a ReferenceGrant lets Ingresses refer to it", HAProxy: noEdits, read: readMirror},
	{Name: "mirror-request-body", Value: "`on` or `off`", Effect: "whether copies have the body", HAProxy: noEdits, alone: "mirror-target", read: func(r *reading, t string) error {
		r.a.bodiless = t == "off"
		return oneOf("on", "off")(t)
	}},
	{Name: "mirror-host", Value: "a host", Effect: "the Host of copies", HAProxy: noEdits, alone: "mirror-target", read: readMirrorHost},
	{Name: "http2-push-preload", Value: aBool, Support: NoNeed, Effect: "no browser takes pushes any more; Link headers pass", read: nothing(isBool)},
	{Name: "enable-access-log", Value: aBool, Effect: "with `false`, requests are in no access log (--access-log)", HAProxy: "all requests are", read: boolean(func(a *annotations, on bool) { a.base.Unlogged = !on })},
	{Name: "enable-opentelemetry", Value: aBool, Effect: "with `false`, requests are in no trace, and traceparent passes as it came; traces are made where the gateway has --trace-endpoint", HAProxy: "no traces are made", read: boolean(func(a *annotations, on bool) { a.base.Untraced = !on })},
	{Name: "opentelemetry-trust-incoming-span", Value: aBool, Support: Otherwise, Effect: "the trace is the client's; whether a request is told of is a trusted proxy's to say, or --trace-share's", read: otherwiseIf("false", isBool)},
	{Name: "opentelemetry-operation-name", Value: "a text", Support: Otherwise, Effect: "spans have the method and the Ingress for their names", read: nothing(isText)},
	{Name: "configuration-snippet", Value: "nginx configuration", Support: Refused, Effect: "snippets are never run; use filters of an HTTPRoute. One that denies or asks for something answers 500", read: readSnippet},
	{Name: "server-snippet", Value: "nginx configuration", Support: Refused, Effect: "snippets are never run; use a rule of an HTTPRoute. One that denies or asks for something answers 500", read: readSnippet},
	{Name: "stream-snippet", Value: "nginx configuration", Support: Refused, Effect: "snippets are never run; use a TCPRoute"},
	{Name: "fastcgi-index", Value: "a name", Support: Refused, Effect: "FastCGI isn't spoken; put a web server before it"},
	{Name: "fastcgi-params-configmap", Value: "a ConfigMap", Support: Refused, Effect: "FastCGI isn't spoken; put a web server before it"},
}

// known finds annotations by their whole names.
var known = func() map[string]*Annotation {
	out := map[string]*Annotation{}
	for i := range table {
		out[nginx+table[i].Name] = &table[i]
	}
	return out
}()

// mayProtect reports whether an annotation that nobody knows may have been to keep
// somebody out.
func mayProtect(name string) bool {
	for _, part := range []string{"auth", "limit", "deny", "allow", "whitelist", "modsecurity", "owasp", "waf", "verify"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
