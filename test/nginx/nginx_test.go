package nginx

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairway-net/fairway/ingress/compile"
	"github.com/fairway-net/fairway/ingress/engine/haproxy"
	"github.com/fairway-net/fairway/ingress/engine/native"
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/test/wait"
)

// host is an Ingress's host, and what nginx has for it.
type host struct {
	annotations string
	paths       []string // "pathType path"
	directives  string   // of nginx, in the server; PASS asks the backend
	requests    []string // "METHOD path header: value"
	lacks       string   // what of it the haproxy engine lacks, by which its requests get 500; "" if nothing
}

var hosts = map[string]host{
	"paths": {
		paths:      []string{"Exact /exact", "Prefix /api", "Prefix /api/v1", "ImplementationSpecific /impl", "ImplementationSpecific /impl/"},
		directives: `location = /exact { PASS } location = /api { PASS } location /api/ { PASS } location = /api/v1 { PASS } location /api/v1/ { PASS } location /impl { PASS } location /impl/ { PASS } location / { return 404; }`,
		requests:   []string{"GET /exact", "GET /exact/", "GET /EXACT", "GET /api", "GET /api/", "GET /apix", "GET /api/v1/x", "GET /api/v1x", "GET /impl", "GET /implement", "GET /impl/x", "GET /other"}, // endpoints get other paths in their normal form, and from nginx as they came
	},
	"regex": {
		annotations: "use-regex: 'true'",
		paths:       []string{"ImplementationSpecific /(.*)", "Prefix /api/v1", "ImplementationSpecific /item/[0-9]+"},
		directives:  `location ~* "^/item/[0-9]+" { PASS } location ~* "^/api/v1" { PASS } location ~* "^/(.*)" { PASS }`,
		requests:    []string{"GET /api/v1", "GET /API/V1x", "GET /item/12/more", "GET /ITEM/1", "GET /item/x", "GET /"},
	},
	"rewrite": {
		annotations: "rewrite-target: /in/$2",
		paths:       []string{"ImplementationSpecific /app(/|$)(.*)"},
		directives:  `location ~* "^/app(/|$)(.*)" { rewrite "(?i)/app(/|$)(.*)" /in/$2 break; PASS } location / { return 404; }`,
		requests:    []string{"GET /app", "GET /app/", "GET /app/x/y?q=1", "GET /APP/x", "GET /application", "GET /other"},
	},
	"query": {
		annotations: "rewrite-target: '/i.php?q=$1'",
		paths:       []string{"ImplementationSpecific /find/(.*)"},
		directives:  `location ~* "^/find/(.*)" { rewrite "(?i)/find/(.*)" /i.php?q=$1 break; PASS } location / { return 404; }`,
		requests:    []string{"GET /find/a", "GET /find/a?b=c", "GET /find/"},
		lacks:       "queries",
	},
	"moved": {
		annotations: "permanent-redirect: 'https://new.example$request_uri'",
		paths:       []string{"Prefix /"},
		directives:  `location / { return 301 https://new.example$request_uri; }`,
		requests:    []string{"GET /", "GET /a/b?c=d", "POST /x"},
		lacks:       "variables",
	},
	"code": {
		annotations: "temporal-redirect: 'https://new.example/here', temporal-redirect-code: '307'",
		paths:       []string{"Prefix /"},
		directives:  `location / { return 307 https://new.example/here; }`,
		requests:    []string{"GET /", "GET /a?b"},
	},
	"listed": {
		annotations: "whitelist-source-range: '192.0.2.0/24'",
		paths:       []string{"Prefix /"},
		directives:  `location / { allow 192.0.2.0/24; deny all; PASS }`,
		requests:    []string{"GET /"},
	},
	"denied": {
		annotations: "denylist-source-range: '127.0.0.0/8'",
		paths:       []string{"Prefix /"},
		directives:  `location / { deny 127.0.0.0/8; PASS }`,
		requests:    []string{"GET /"},
	},
	"small": {
		annotations: "proxy-body-size: '4'",
		paths:       []string{"Prefix /"},
		directives:  `client_max_body_size 4; location / { PASS }`,
		requests:    []string{"POST / body: four", "POST / body: more than four"},
	},
	"password": {
		annotations: "auth-type: basic, auth-secret: users, auth-realm: here",
		paths:       []string{"Prefix /"},
		directives:  `location / { auth_basic "here"; auth_basic_user_file users; PASS }`,
		requests:    []string{"GET /", "GET / Authorization: Basic bWU6c2VjcmV0", "GET / Authorization: Basic bWU6d3Jvbmc="},
	},
	"vhost": {
		annotations: "upstream-vhost: inner.example, x-forwarded-prefix: /app",
		paths:       []string{"Prefix /"},
		directives:  `location / { proxy_set_header Host inner.example; proxy_set_header X-Forwarded-Prefix /app; proxy_pass http://BACKEND; }`,
		requests:    []string{"GET /", "GET / X-Forwarded-Prefix: /mine"},
	},
	"cookies": {
		annotations: "proxy-cookie-path: '/ /app/', proxy-cookie-domain: 'inner.example outer.example', proxy-redirect-from: 'http://inner.example/', proxy-redirect-to: 'http://outer.example/'",
		paths:       []string{"Prefix /"},
		directives:  `location / { proxy_cookie_path / /app/; proxy_cookie_domain inner.example outer.example; proxy_redirect http://inner.example/ http://outer.example/; PASS }`,
		requests:    []string{"GET /cookies", "GET /"},
		lacks:       "rewrites of answers",
	},
	"root": {
		annotations: "app-root: /start",
		paths:       []string{"Prefix /"},
		directives:  `if ($uri = /) { return 302 http://$host/start; } location / { PASS }`,
		requests:    []string{"GET /", "GET /start", "GET /x"},
	},
	"relative": {
		annotations: "app-root: /start, relative-redirects: 'true'",
		paths:       []string{"Prefix /"},
		directives:  `absolute_redirect off; if ($uri = /) { return 302 /start; } location / { PASS }`,
		requests:    []string{"GET /", "GET /x"},
	},
	"relatively": {
		annotations: "permanent-redirect: /start, relative-redirects: 'true'",
		paths:       []string{"Prefix /"},
		directives:  `absolute_redirect off; location / { return 301 /start; }`,
		requests:    []string{"GET /", "GET /x?y"},
	},
	"absolutely": {
		annotations: "permanent-redirect: /start",
		paths:       []string{"Prefix /"},
		directives:  `location / { return 301 http://$host/start; }`,
		requests:    []string{"GET /", "GET /x?y"},
	},
	"anyscript": {
		annotations: "enable-cors: 'true', cors-allow-methods: GET, cors-allow-headers: X-Mine, cors-max-age: '60'",
		paths:       []string{"Prefix /"},
		directives: `location / { add_header Access-Control-Allow-Origin *; add_header Access-Control-Allow-Credentials true;
			if ($request_method = OPTIONS) { add_header Access-Control-Allow-Origin *; add_header Access-Control-Allow-Credentials true; add_header Access-Control-Allow-Methods GET; add_header Access-Control-Allow-Headers X-Mine; add_header Access-Control-Max-Age 60; return 204; }
			PASS }`,
		requests: []string{"GET /", "OPTIONS /", "GET / Origin: https://a.example"},
	},
	"any": {
		annotations: "satisfy: any, auth-type: basic, auth-secret: users, auth-realm: here, whitelist-source-range: '192.0.2.0/24'",
		paths:       []string{"Prefix /"},
		directives:  `location / { satisfy any; allow 192.0.2.0/24; deny all; auth_basic "here"; auth_basic_user_file users; PASS }`,
		requests:    []string{"GET /", "GET / Authorization: Basic bWU6c2VjcmV0", "GET / Authorization: Basic bWU6d3Jvbmc="},
		lacks:       "any of several",
	},
	"anyhere": {
		annotations: "satisfy: any, auth-type: basic, auth-secret: users, auth-realm: here, whitelist-source-range: '127.0.0.0/8'",
		paths:       []string{"Prefix /"},
		directives:  `location / { satisfy any; allow 127.0.0.0/8; deny all; auth_basic "here"; auth_basic_user_file users; PASS }`,
		requests:    []string{"GET /", "GET / Authorization: Basic bWU6d3Jvbmc="},
		lacks:       "any of several",
	},
	"both": {
		annotations: "satisfy: all, auth-type: basic, auth-secret: users, auth-realm: here, whitelist-source-range: '127.0.0.0/8'",
		paths:       []string{"Prefix /"},
		directives:  `location / { satisfy all; allow 127.0.0.0/8; deny all; auth_basic "here"; auth_basic_user_file users; PASS }`,
		requests:    []string{"GET /", "GET / Authorization: Basic bWU6c2VjcmV0"},
	},
	"asked": {
		annotations: "auth-url: 'http://web.a.svc.cluster.local/auth', auth-response-headers: X-User",
		paths:       []string{"Prefix /"},
		directives:  `location = /_auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ''; proxy_pass http://BACKEND/auth; } location / { auth_request /_auth; auth_request_set $user $upstream_http_x_user; auth_request_set $cookie $upstream_http_set_cookie; add_header Set-Cookie $cookie; proxy_set_header X-User $user; PASS }`,
		requests:    []string{"GET /", "GET / Authorization: good", "GET / Authorization: forbidden", "GET /teapot Authorization: good", "POST / Authorization: good"},
		lacks:       "other servers that are asked",
	},
	"alwayscookie": {
		annotations: "auth-url: 'http://web.a.svc.cluster.local/auth', auth-always-set-cookie: 'true'",
		paths:       []string{"Prefix /"},
		directives:  `location = /_auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length ''; proxy_pass http://BACKEND/auth; } location / { auth_request /_auth; auth_request_set $cookie $upstream_http_set_cookie; add_header Set-Cookie $cookie always; PASS }`,
		requests:    []string{"GET / Authorization: good", "GET /teapot Authorization: good"},
		lacks:       "other servers that are asked",
	},
	"script": {
		annotations: "enable-cors: 'true', cors-allow-origin: 'https://a.example', cors-allow-methods: 'GET, PUT', cors-allow-headers: X-Mine, cors-expose-headers: X-Seen, cors-max-age: '60'",
		paths:       []string{"Prefix /"},
		directives: `set $known ''; if ($http_origin = https://a.example) { set $known yes; } if ($request_method = OPTIONS) { set $known "${known}options"; }
			location / { add_header Access-Control-Allow-Origin https://a.example; add_header Access-Control-Allow-Credentials true; add_header Access-Control-Expose-Headers X-Seen;
			if ($known = yesoptions) { add_header Access-Control-Allow-Origin https://a.example; add_header Access-Control-Allow-Credentials true; add_header Access-Control-Expose-Headers X-Seen; add_header Access-Control-Allow-Methods 'GET, PUT'; add_header Access-Control-Allow-Headers X-Mine; add_header Access-Control-Max-Age 60; return 204; }
			PASS }`,
		requests: []string{"GET / Origin: https://a.example", "OPTIONS / Origin: https://a.example"},
	},
	"often": {
		annotations: "limit-rpm: '1', limit-burst-multiplier: '2'",
		paths:       []string{"Prefix /"},
		directives:  `limit_req zone=often burst=2 nodelay; location / { PASS }`,
		requests:    []string{"GET /1", "GET /2", "GET /3", "GET /4", "GET /5"},
		lacks:       "limits",
	},
	"guess": {
		annotations: "limit-rpm: '1', limit-burst-multiplier: '2', auth-type: basic, auth-secret: users, auth-realm: here",
		paths:       []string{"Prefix /"},
		directives:  `limit_req zone=guess burst=2 nodelay; location / { auth_basic "here"; auth_basic_user_file users; PASS }`,
		requests:    []string{"GET /1 Authorization: Basic bWU6d3Jvbmc=", "GET /2", "GET /3 Authorization: Basic bWU6c2VjcmV0", "GET /4 Authorization: Basic bWU6c2VjcmV0", "GET /5"},
		lacks:       "limits",
	},
	"slow": {
		annotations: "limit-rate: '64', limit-rate-after: '1'",
		paths:       []string{"Prefix /"},
		directives:  `location / { limit_rate 64k; limit_rate_after 1k; PASS }`,
		requests:    []string{"GET /", "GET /big"},
		lacks:       "rates",
	},
	"elsewhere": {
		annotations: "default-backend: web, custom-http-errors: '418'",
		paths:       []string{"Prefix /"},
		directives:  `proxy_intercept_errors on; error_page 418 = @other; location @other { rewrite ^ / break; proxy_method GET; PASS } location / { PASS }`,
		requests:    []string{"GET /fine", "GET /teapot", "POST /teapot body: text"},
		lacks:       "other backends in the place of errors",
	},
}

// TestAgainstNginx asks both.
func TestAgainstNginx(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/auth":
			w.Header().Set("X-User", "ada")
			w.Header().Set("Set-Cookie", "session=1")
			w.WriteHeader(map[string]int{"good": http.StatusOK, "forbidden": http.StatusForbidden, "": http.StatusUnauthorized}[r.Header.Get("Authorization")])
			return
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
			return
		case "/big":
			_, _ = io.WriteString(w, strings.Repeat("x", 16<<10)) // an error shows in the answer
			return
		case "/cookies":
			w.Header().Set("Set-Cookie", "a=b; Path=/x; Domain=inner.example; HttpOnly")
			w.Header().Set("Location", "http://inner.example/there")
			w.WriteHeader(http.StatusFound)
			return
		}
		fmt.Fprintf(w, "%s %s host %s prefix %s user %s", r.Method, r.RequestURI, strings.TrimSuffix(r.Host, ":80"), r.Header.Get("X-Forwarded-Prefix"), r.Header.Get("X-User"))
	}))
	defer backend.Close()
	to := backend.Listener.Addr().String()
	nginx := startNginx(t, to)
	for _, engine := range engines.Names {
		at := startFairway(t, engine, netip.MustParseAddrPort(to))
		for name, h := range hosts {
			t.Run(engine+"/"+name, func(t *testing.T) {
				for _, request := range h.requests {
					want, got := ask(t, nginx, name, request), ask(t, at, name, request)
					switch {
					case engine == engines.HAProxy && h.lacks != "":
						if !strings.HasPrefix(got, "500 ") {
							t.Errorf("%s: answer %s, want 500: the engine lacks %s", request, got, h.lacks)
						}
					case got != want:
						t.Errorf("%s: answer\n%s\nnginx'\n%s", request, got, want)
					}
				}
			})
		}
	}
}

// ask is an answer's status, and of its headers and body what counts.
func ask(t *testing.T, address, host, request string) string {
	t.Helper()
	line, header, _ := strings.Cut(request, ": ")
	words := strings.Fields(line)
	body := ""
	if len(words) > 2 && words[2] == "body" {
		body = header
	}
	q, err := http.NewRequestWithContext(t.Context(), words[0], "http://"+address+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Host, q.URL.Opaque = host, words[1]
	path, query, _ := strings.Cut(words[1], "?")
	q.URL.Opaque, q.URL.RawQuery = path, query
	if len(words) > 2 && body == "" {
		q.Header.Set(words[2], header)
	}
	if words[0] == http.MethodOptions {
		q.Header.Set("Access-Control-Request-Method", "GET")
	}
	response, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text = nil // the words of an error are each one's own
	}
	script := ""
	for _, name := range []string{"Allow-Origin", "Allow-Credentials", "Expose-Headers", "Allow-Methods", "Allow-Headers", "Max-Age"} {
		script += " " + response.Header.Get("Access-Control-"+name)
	}
	return fmt.Sprintf("%d script%s location %s cookie %s realm %s: %s", response.StatusCode, script, response.Header.Get("Location"), strings.Join(response.Header["Set-Cookie"], "|"), strings.TrimSuffix(response.Header.Get("Www-Authenticate"), `, charset="UTF-8"`), text)
}

const users = "me:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n" // secret

// startNginx runs nginx, which the test needs.
func startNginx(t *testing.T, backend string) string {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("nginx is needed (apt-get install nginx-light): %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	folder := t.TempDir()
	var servers strings.Builder
	for name, h := range hosts {
		pass := "proxy_set_header Host $host; proxy_set_header X-Forwarded-Prefix ''; proxy_pass http://" + backend + ";"
		directives := strings.ReplaceAll(strings.ReplaceAll(h.directives, "PASS", pass), "BACKEND", backend)
		fmt.Fprintf(&servers, "server { listen %s; server_name %s; %s }\n", address, name, directives)
	}
	config := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors;\nevents {}\nhttp { access_log off; limit_req_zone $binary_remote_addr zone=often:1m rate=1r/m; limit_req_zone $binary_remote_addr zone=guess:1m rate=1r/m; client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;\n%[2]s}\n", folder, servers.String())
	for name, text := range map[string]string{"nginx.conf": config, "users": users} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, "-p", folder, "-c", filepath.Join(folder, "nginx.conf"))
	var said strings.Builder
	command.Stderr = &said
	if err := command.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = command.Wait() })
	for late := range wait.Tries(time.Minute) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if late {
			t.Fatalf("nginx doesn't answer: %v\n%s", err, said.String())
		}
	}
	return address
}

// startFairway serves the Ingresses by an engine.
func startFairway(t *testing.T, engine string, backend netip.AddrPort) string {
	class := "nginx"
	o := &compile.Objects{
		IngressClasses: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: compile.IngressController}}},
		Services: map[types.NamespacedName]*corev1.Service{{Namespace: "a", Name: "web"}: {
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		}},
		Secrets: map[types.NamespacedName]*corev1.Secret{{Namespace: "a", Name: "users"}: {Data: map[string][]byte{"auth": []byte(users)}}},
	}
	for name, h := range hosts {
		var paths []string
		for _, p := range h.paths {
			kind, path, _ := strings.Cut(p, " ")
			paths = append(paths, fmt.Sprintf("{path: %q, pathType: %s, backend: {service: {name: web, port: {number: 80}}}}", path, kind))
		}
		i := &networkingv1.Ingress{}
		text := fmt.Sprintf("metadata: {namespace: a, name: %s, annotations: {%s}}\nspec: {rules: [{host: %s, http: {paths: [%s]}}]}", name, h.annotations, name, strings.Join(paths, ", "))
		if err := yaml.UnmarshalStrict([]byte(text), i); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		for key, value := range i.Annotations {
			delete(i.Annotations, key)
			i.Annotations[compile.NginxPrefix+key] = value
		}
		i.Spec.IngressClassName = &class
		o.Ingresses = append(o.Ingresses, i)
	}
	out := compile.Compile(o, compile.Options{
		Bind: func(types.NamespacedName, uint16) netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:0") },
		Endpoints: func(types.NamespacedName, *corev1.ServicePort) []model.Endpoint {
			return []model.Endpoint{{Addr: backend, Weight: 1}}
		},
	})
	for _, p := range out.Problems {
		t.Errorf("%s %s: %s", p.Kind, p.Object, p.Message)
	}
	e := startEngine(t, engine)
	if err := e.Apply(out.Table); err != nil {
		t.Fatal(err)
	}
	return e.Sockets()[compile.IngressGateway.String()+":80"].String()
}

// engineUnderTest is what both engines are.
type engineUnderTest interface {
	Apply(*model.Table) error
	Sockets() map[string]netip.AddrPort
	Close(context.Context)
}

func startEngine(t *testing.T, name string) engineUnderTest {
	t.Helper()
	var e engineUnderTest
	var err error
	if name == engines.HAProxy {
		e, err = haproxy.New(haproxy.Options{Drain: time.Second})
	} else {
		e, err = native.New(native.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		e.Close(ctx)
	})
	return e
}
