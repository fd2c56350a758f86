package compile

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairway-net/fairway/ingress/model"
)

var writeDocs = flag.Bool("docs", false, "write docs/reference/ingress-annotations.md")

// documented are the annotations that ingress-nginx 1.15 documents.
var documented = strings.Fields(`
server-alias allowlist-source-range backend-protocol auth-realm auth-secret auth-secret-type auth-type canary canary-by-cookie canary-by-header canary-by-header-pattern
canary-by-header-value canary-weight canary-weight-total auth-tls-error-page auth-tls-match-cn auth-tls-pass-certificate-to-upstream auth-tls-secret auth-tls-verify-client
auth-tls-verify-depth client-body-buffer-size configuration-snippet connection-proxy-header cors-allow-credentials cors-allow-headers cors-allow-methods cors-allow-origin
cors-expose-headers cors-max-age enable-cors custom-http-errors custom-headers default-backend denylist-source-range disable-proxy-intercept-errors enable-global-auth
auth-always-set-cookie auth-cache-duration auth-cache-key auth-keepalive auth-keepalive-requests auth-keepalive-share-vars auth-keepalive-timeout auth-method auth-proxy-set-headers
auth-request-redirect auth-response-headers auth-signin auth-signin-redirect-param auth-snippet auth-url fastcgi-index fastcgi-params-configmap http2-push-preload load-balance
enable-access-log enable-rewrite-log mirror-host mirror-request-body mirror-target enable-modsecurity enable-owasp-core-rules modsecurity-snippet modsecurity-transaction-id
enable-opentelemetry opentelemetry-operation-name opentelemetry-trust-incoming-span proxy-body-size proxy-buffer-size proxy-buffering proxy-buffers-number proxy-busy-buffers-size
proxy-connect-timeout proxy-cookie-domain proxy-cookie-path proxy-http-version proxy-max-temp-file-size proxy-next-upstream proxy-next-upstream-timeout proxy-next-upstream-tries
proxy-read-timeout proxy-redirect-from proxy-redirect-to proxy-request-buffering proxy-send-timeout proxy-ssl-ciphers proxy-ssl-name proxy-ssl-protocols proxy-ssl-secret
proxy-ssl-server-name proxy-ssl-verify proxy-ssl-verify-depth limit-allowlist limit-burst-multiplier limit-connections limit-rate limit-rate-after limit-rpm limit-rps
from-to-www-redirect permanent-redirect permanent-redirect-code relative-redirects temporal-redirect temporal-redirect-code app-root force-ssl-redirect preserve-trailing-slash
rewrite-target ssl-redirect use-regex ssl-ciphers ssl-prefer-server-ciphers ssl-passthrough satisfy server-snippet service-upstream affinity affinity-canary-behavior affinity-mode
session-cookie-change-on-failure session-cookie-conditional-samesite-none session-cookie-domain session-cookie-expires session-cookie-max-age session-cookie-name session-cookie-path
session-cookie-samesite session-cookie-secure stream-snippet upstream-hash-by upstream-hash-by-subset upstream-hash-by-subset-size upstream-vhost use-port-in-redirects x-forwarded-prefix
`)

// TestAllAnnotations: each annotation that ingress-nginx documents is in the table, and
// docs/reference/ingress-annotations.md says what the table says.
func TestAllAnnotations(t *testing.T) {
	names := map[string]int{}
	for _, a := range Annotations() {
		names[a.Name]++
		if a.Value == "" || a.Effect == "" || a.alone != "" && known[nginx+a.alone] == nil {
			t.Errorf("%s: %+v", a.Name, a)
		}
		if a.read == nil && a.alone == "" && a.Support != Refused && a.Support != Closes {
			t.Errorf("%s is accepted in silence", a.Name)
		}
	}
	for _, name := range documented {
		if names[name] != 1 {
			t.Errorf("%s is in the table %d times", name, names[name])
		}
	}
	const file = "../../docs/reference/ingress-annotations.md"
	want := AnnotationsPage(documented)
	if *writeDocs {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what the table says (%v): run make generate", file, err)
	}
}

// TestAnnotationValues: each value is read as documented, or told; what protects closes.
func TestAnnotationValues(t *testing.T) {
	for _, test := range []struct {
		annotations string
		told        string // part of what is told; "" is nothing
		closed      bool
		does        func(*model.Action) bool // nil asks nothing
	}{
		{annotations: "limit-rpm: '30', limit-burst-multiplier: '2', limit-allowlist: 192.0.2.1", does: func(a *model.Action) bool {
			return a.Limit.PerSecond == 0.5 && a.Limit.Burst == 61 && len(a.Limit.Except) == 1
		}},
		{annotations: "limit-rps: '3'", does: func(a *model.Action) bool { return a.Limit.PerSecond == 3 && a.Limit.Burst == 16 }},
		{annotations: "limit-rps: many", told: "must be a whole number", closed: true},
		{annotations: "limit-rate: '100', limit-rate-after: '10'", does: func(a *model.Action) bool { return *a.Rate == model.Rate{PerSecond: 102400, After: 10240} }},
		{annotations: "limit-rate: fast", told: "must be a whole number", closed: true},
		{annotations: "limit-rate-after: '10'", told: "says nothing without the annotation limit-rate"},
		{annotations: "limit-of-some-sort: x", told: "not supported", closed: true},
		{annotations: "novel: x", told: "not supported, and left out"},
		{annotations: "enable-modsecurity: 'true'", told: "ModSecurity", closed: true},
		{annotations: "enable-modsecurity: 'false'"},
		{annotations: "configuration-snippet: 'more_set_headers \"a: b\";'", told: "snippets are never run; use filters"},
		{annotations: "configuration-snippet: 'deny 192.0.2.1;'", told: "keeps somebody out (deny)", closed: true},
		{annotations: "server-snippet: 'location /x { return 403; }'", told: "keeps somebody out", closed: true},
		{annotations: "auth-tls-match-cn: CN=x", told: "says nothing without the annotation auth-tls-secret"},
		{annotations: "auth-tls-secret: shop/ca, auth-tls-verify-client: 'off', auth-tls-match-cn: CN=x", does: func(a *model.Action) bool { return a.Identity.Subject.MatchString("CN=x,O=y") && !a.Identity.Whole }},
		{annotations: "auth-tls-secret: shop/ca, auth-tls-verify-client: 'off', auth-tls-match-cn: 'CN=('", told: "missing closing", closed: true},
		{annotations: "auth-tls-secret: shop/ca, auth-tls-verify-client: 'off', auth-tls-pass-certificate-to-upstream: 'true'", does: func(a *model.Action) bool { return a.Identity.Whole }},
		{annotations: "auth-tls-pass-certificate-to-upstream: 'true'", told: "says nothing without the annotation auth-tls-secret"},
		{annotations: "auth-type: digest", told: "must be basic", closed: true},
		{annotations: "auth-type: basic, auth-secret: users, auth-realm: x", does: func(a *model.Action) bool { return a.BasicAuth.Realm == "x" && len(a.BasicAuth.Users) == 1 }},
		{annotations: "auth-realm: x", told: "says nothing without the annotation auth-type"},
		{annotations: "auth-url: http://web.shop.svc/ask, auth-cache-key: $remote_user, auth-keepalive: '10'", told: "nothing is cached"},
		{annotations: "auth-url: http://web.shop.svc/ask, auth-request-redirect: $scheme://$host$request_uri", does: func(a *model.Action) bool { return a.Auth.Request[0].Name == "X-Auth-Request-Redirect" }},
		{annotations: "auth-url: http://web.shop.svc/ask, auth-request-redirect: $nobody", told: "$nobody is not supported", closed: true},
		{annotations: "session-cookie-expires: '60', affinity: cookie", does: func(a *model.Action) bool { return a.Affinity.MaxAge == 60 }},
		{annotations: "session-cookie-change-on-failure: 'true', affinity: cookie", does: func(a *model.Action) bool { return !a.Affinity.Keep }},
		{annotations: "affinity: cookie, affinity-canary-behavior: legacy, session-cookie-conditional-samesite-none: 'true'", does: func(a *model.Action) bool { return a.Affinity.Keep && a.Affinity.Loose && a.Affinity.Known }},
		{annotations: "auth-url: http://web.shop.svc/ask, auth-always-set-cookie: 'true'", does: func(a *model.Action) bool { return a.Auth.Cookies }},
		{annotations: `affinity: cookie, session-cookie-name: "a\r\nb"`, told: "is no name of a cookie", does: func(a *model.Action) bool { return a.Affinity == nil }},
		{annotations: "affinity: cookie, session-cookie-path: '/a; Domain=b'", told: "is no path that a cookie can have", does: func(a *model.Action) bool { return a.Affinity == nil }},
		{annotations: "affinity: cookie, session-cookie-domain: 'a b'", told: "is no domain", does: func(a *model.Action) bool { return a.Affinity == nil }},
		{annotations: "affinity: cookie, session-cookie-domain: .Example.com", does: func(a *model.Action) bool { return a.Affinity.Domain == ".Example.com" }},
		{annotations: "enable-opentelemetry: 'false'", does: func(a *model.Action) bool { return a.Untraced }},
		{annotations: "enable-opentelemetry: 'true'", does: func(a *model.Action) bool { return !a.Untraced }},
		{annotations: "enable-access-log: 'false'", does: func(a *model.Action) bool { return a.Unlogged }},
		{annotations: "proxy-next-upstream: error, proxy-next-upstream-timeout: '3'", does: func(a *model.Action) bool { return a.Retry.Within.Seconds() == 3 }},
		{annotations: "proxy-next-upstream: 'off'", does: func(a *model.Action) bool { return a.Retry.Attempts == 0 }},
		{annotations: "proxy-next-upstream-tries: '5'", does: func(a *model.Action) bool {
			return a.Retry.Attempts == 4 && a.Retry.Connection && a.Retry.Late && a.Retry.Idempotent
		}},
		{annotations: "proxy-next-upstream: 'invalid_header non_idempotent', proxy-next-upstream-tries: '0'", does: func(a *model.Action) bool {
			return a.Retry.Attempts == 15 && a.Retry.Connection && !a.Retry.Idempotent
		}},
		{annotations: "proxy-next-upstream: http_418", told: `"http_418" is no condition`},
		{annotations: "proxy-next-upstream-tries: many", told: "must be a whole number"},
		{annotations: "proxy-next-upstream: error, proxy-next-upstream-timeout: soon", told: "must be seconds"},
		{annotations: "mirror-target: 'http://next.shop.svc.cluster.local$request_uri', mirror-host: copy.example, mirror-request-body: 'off'", does: func(a *model.Action) bool { return a.Mirrors[0].Host == "copy.example" && a.Mirrors[0].Bodiless }},
		{annotations: "mirror-target: 'http://next.shop.svc.cluster.local$request_uri', mirror-host: $host", told: "must be a host without variables"},
		{annotations: "permanent-redirect: 'https://new.example$request_uri'", does: func(a *model.Action) bool { return a.Redirect.Variables && a.Redirect.Status == 301 }},
		{annotations: "permanent-redirect: 'https://new.example', permanent-redirect-code: '308'", does: func(a *model.Action) bool { return !a.Redirect.Variables && a.Redirect.Status == 308 }},
		{annotations: "permanent-redirect: 'https://new.example/$nobody'", told: "$nobody is not supported"},
		{annotations: "permanent-redirect: /elsewhere", does: func(a *model.Action) bool { return !a.Redirect.Relative }},
		{annotations: "permanent-redirect: /elsewhere, relative-redirects: 'true'", does: func(a *model.Action) bool { return a.Redirect.Relative }},
		{annotations: "relative-redirects: 'true', temporal-redirect: /elsewhere", does: func(a *model.Action) bool { return a.Redirect.Relative }},
		{annotations: "permanent-redirect: 'https://new.example/$1', use-regex: 'true'", does: func(a *model.Action) bool { return a.Redirect.Variables }},
		{annotations: "rewrite-target: ''", told: "is empty", does: func(a *model.Action) bool { return a.Rewrite == nil }},
		{annotations: "permanent-redirect: //elsewhere", told: "must be an http or https address"},
		{annotations: "auth-url: 'https://invalid..example'", told: "is no host", closed: true},
		{annotations: "enable-cors: 'true', cors-allow-origin: ' '", does: func(a *model.Action) bool { return a.CORS.Origins[0] == "*" }},
		{annotations: "rewrite-target: '/i.php?q=$1'", does: func(a *model.Action) bool {
			return a.Rewrite.Path.Value == "/i.php" && a.Rewrite.Path.Query == "q=${1}"
		}},
		{annotations: "rewrite-target: '/$host'", told: "are the only variables"},
		{annotations: "proxy-read-timeout: '10', proxy-send-timeout: 20s", does: func(a *model.Action) bool { return a.ReadTimeout.Seconds() == 20 }},
		{annotations: "proxy-buffering: 'off', proxy-buffer-size: 8k"},
		{annotations: "proxy-buffering: maybe", told: "must be on or off"},
		{annotations: "proxy-buffer-size: large", told: "must be a size"},
		{annotations: "proxy-body-size: large", told: "must be a size", closed: true},
		{annotations: "proxy-cookie-path: '/ /app', proxy-redirect-from: http://a/, proxy-redirect-to: /", does: func(a *model.Action) bool { return len(a.Response.Replace) == 2 }},
		{annotations: "proxy-next-upstream: 'error http_502', proxy-next-upstream-tries: '4'", does: func(a *model.Action) bool {
			return a.Retry.Connection && a.Retry.Attempts == 3 && a.Retry.Codes[0] == 502
		}},
		{annotations: "proxy-ssl-verify: 'on'", told: "proxy-ssl-secret has to say", closed: true},
		{annotations: "proxy-ssl-verify: 'on', proxy-ssl-name: x, proxy-ssl-secret: gone", told: "there is no Secret shop/gone", closed: true},
		{annotations: "proxy-ssl-verify: 'on', proxy-ssl-name: x, proxy-ssl-secret: shop/ca, backend-protocol: HTTPS"},
		{annotations: "upstream-hash-by: $request_uri", told: "the client's address is the only key"},
		{annotations: "custom-headers: shop/gone", told: "there is no ConfigMap shop/gone"},
		{annotations: "satisfy: any", does: func(a *model.Action) bool { return a.AnyOf }},
		{annotations: "satisfy: all", does: func(a *model.Action) bool { return !a.AnyOf }},
		{annotations: "satisfy: some", told: "must be all or any", closed: true},
		{annotations: "mirror-target: 'http://next.shop.svc.cluster.local$request_uri'", does: func(a *model.Action) bool { return len(a.Mirrors) == 1 }},
		{annotations: "mirror-target: 'https://elsewhere.example$request_uri'", told: "must be a Service's address"},
		{annotations: "x-forwarded-prefix: /app", does: func(a *model.Action) bool { return a.Request.Set[0].Value == "/app" }},
	} {
		text := fmt.Sprintf("metadata: {namespace: shop, name: web, annotations: {%s}}\nspec: {rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}", test.annotations)
		out := Compile(tenants(t, text), Options{Endpoints: endpointOf})
		told := fmt.Sprint(out.Problems)
		if test.told == "" && len(out.Problems) > 0 || !strings.Contains(told, test.told) {
			t.Errorf("%s: told %s, want %q", test.annotations, told, test.told)
		}
		hosts := out.Table.Sockets[0].Listeners[0].Hosts()
		i := slices.IndexFunc(hosts, func(h *model.Host) bool { return h.Hostname == "h" })
		a := hosts[i].Rules[0].Action
		if (a.Invalid != "") != test.closed {
			t.Errorf("%s: closed because of %q, want %t", test.annotations, a.Invalid, test.closed)
		}
		if test.does != nil && !test.does(a) {
			t.Errorf("%s: the action is %+v", test.annotations, a)
		}
	}
}
