package nginx

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
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
	"github.com/fairway-net/fairway/ingress/engines"
	"github.com/fairway-net/fairway/ingress/model"
)

var update = flag.Bool("update", false, "write docs/results/ingress-nginx-cases.md")

// suiteCase is a case of ingress-nginx's own suite: testdata/suite.txt says how it is written.
type suiteCase struct {
	file, name string
	ingresses  []string // "options PATHS SERVICE ; annotation=value"
	requests   []string // "METHOD URL headers => status expectations"
	event      string   // the reason of an Event that must be there
	otherwise  string   // what is another than there
	unplayed   string   // why nothing is asked
	lacks      string   // what the haproxy engine lacks for it
}

func readSuite(t *testing.T, file string) []*suiteCase {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []*suiteCase
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		rest := strings.TrimPrefix(line, "  ")
		if name, is := strings.CutPrefix(line, "# "); is {
			section = name
			continue
		}
		if rest == line {
			out = append(out, &suiteCase{file: section, name: line})
			continue
		}
		c, value := out[len(out)-1], strings.ReplaceAll(rest[2:], "␠", " ")
		switch rest[0] {
		case '@':
			c.ingresses = append(c.ingresses, value)
		case '>':
			c.requests = append(c.requests, value)
		case '!':
			c.event = value
		case '=':
			c.otherwise = value
		case '-':
			c.unplayed = value
		default:
			t.Fatalf("%s: what is %q?", c.name, line)
		}
	}
	return out
}

// TestSuite plays the cases of ingress-nginx's suite of annotations by both engines.
func TestSuite(t *testing.T) {
	cases := append(readSuite(t, "testdata/suite.txt"), readSuite(t, "testdata/traefik.txt")...)
	s := newServices(t)
	played, all := 0, 0
	for _, engine := range engines.Names {
		e := startEngine(t, engine)
		for _, c := range cases {
			if c.unplayed != "" {
				continue
			}
			all++
			t.Run(engine+"/"+c.file+"/"+c.name, func(t *testing.T) {
				played++
				s.play(t, c, engine, e)
			})
		}
	}
	if played < all { // of some cases alone (-run), what haproxy lacks isn't known
		return
	}
	page := casesPage(cases)
	const file = "../../docs/results/ingress-nginx-cases.md"
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	if now, err := os.ReadFile(file); !t.Failed() && (err != nil || string(now) != page) {
		t.Errorf("docs/results/ingress-nginx-cases.md is stale (%v): run the test with -update", err)
	}
}

// casesPage is the document.
func casesPage(cases []*suiteCase) string {
	var suite, traefik strings.Builder
	count := map[string]int{}
	theirs := 0
	for _, c := range cases {
		what := "as there"
		switch {
		case c.unplayed != "":
			what = "not played: " + c.unplayed
			count["not"]++
		case c.otherwise != "":
			what = "otherwise: " + c.otherwise
			count["otherwise"]++
		default:
			count["as"]++
		}
		if c.lacks != "" {
			count["lacks"]++
		}
		if c.file == "traefik" {
			theirs++
			fmt.Fprintf(&traefik, "| %s | %s | %s |\n", c.name, what, c.lacks)
			continue
		}
		fmt.Fprintf(&suite, "| %s | %s | %s | %s |\n", c.file, c.name, what, c.lacks)
	}
	return fmt.Sprintf(`# ingress-nginx's own cases

The suite of ingress-nginx for annotations (test/e2e/annotations of its commit dbb11b9, 2026-03-19, its last) has %d cases, and Traefik's provider for such Ingresses has %d
(fixtures/ingresses of its commit fd5a576, 2026-07-24). Here is each of them, by its file and what it is about, in the order of the files. Most are played: the same annotations, the same requests, and the answers that ingress-nginx gives, by both engines (TestSuite in test/nginx, which writes this page with -update).

| | cases |
|---|---|
| as there | %d |
| otherwise, with how; played, too | %d |
| not played, with the reason | %d |
| of those that are played, answered 500 by the haproxy engine, which says what it lacks | %d |

## ingress-nginx

| file | case | here | haproxy lacks |
|---|---|---|---|
%s
## Traefik

| fixture | here | haproxy lacks |
|---|---|---|
%s`, len(cases)-theirs, theirs, count["as"], count["otherwise"], count["not"], count["lacks"], suite.String(), traefik.String())
}

// services are those to which Ingresses lead.
type services struct {
	at       map[string]netip.AddrPort
	release  chan struct{} // lets requests for /hold go
	ca       *tls.Certificate
	pair, to map[string][]byte
}

func newServices(t *testing.T) *services {
	s := &services{at: map[string]netip.AddrPort{}, release: make(chan struct{})}
	for _, name := range []string{"web", "next", "auth", "secure"} {
		e := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, name) }))
		var protocols http.Protocols
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(true)
		e.Config.Protocols = &protocols
		if name == "secure" {
			e.EnableHTTP2 = true
			e.StartTLS()
		} else {
			e.Start()
		}
		t.Cleanup(e.Close)
		s.at[name] = netip.MustParseAddrPort(e.Listener.Addr().String())
	}
	s.ca, s.to = pairOf(t, "authtls")
	_, s.pair = pairOf(t, "h")
	return s
}

// answer is what endpoints answer.
func (s *services) answer(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Service", name)
	w.Header().Set("Asked", r.RequestURI)
	w.Header().Set("Asked-Host", r.Host)
	w.Header().Set("Proto", r.Proto)
	for key, values := range r.Header {
		w.Header()["Asked-"+key] = values
	}
	switch r.URL.Path {
	case "/error":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/cookies/set/alma/armud":
		w.Header().Set("Set-Cookie", "alma=armud")
	case "/cookie":
		w.Header().Set("Set-Cookie", "a=b; Domain=localhost; Path=/one/two")
	case "/moved":
		w.Header().Set("Location", "http://hello.com/there")
		w.WriteHeader(http.StatusFound)
	case "/basic-auth/user/password":
		if user, password, _ := r.BasicAuth(); user != "user" || password != "password" {
			w.Header().Set("Www-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		}
	case "/response-headers":
		w.Header().Set("Authorization", "foo")
	case "/header/my-custom-header":
		if r.Header.Get("My-Custom-Header") != "42" {
			w.WriteHeader(http.StatusForbidden)
		}
	case "/late":
		<-r.Context().Done()
	case "/hold":
		<-s.release
	}
}

// pairOf makes a certificate that is its own authority.
func pairOf(t *testing.T, name string) (*tls.Certificate, map[string][]byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"h", "www.h", "other.h"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, map[string][]byte{
		corev1.TLSCertKey: text, corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), "ca.crt": text,
	}
}

// objects are those of a case.
func (s *services) objects(t *testing.T, c *suiteCase) *compile.Objects {
	t.Helper()
	at := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Data: data}
	}
	const hash = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=" // password
	class := "nginx"
	o := &compile.Objects{
		IngressClasses: []*networkingv1.IngressClass{{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: compile.IngressController}}},
		Services:       map[types.NamespacedName]*corev1.Service{},
		Secrets: map[types.NamespacedName]*corev1.Secret{
			at("users"): secret("users", map[string][]byte{"auth": []byte("user:" + hash + "\n")}), at("others"): secret("others", map[string][]byte{"auth": []byte("uid:" + hash + "\n")}),
			at("map"): secret("map", map[string][]byte{"user": []byte(hash)}), at("invalid"): secret("invalid", map[string][]byte{"auth": []byte("foo:")}),
			at("ca"): secret("ca", s.to), at("pair"): secret("pair", s.pair),
		},
		ConfigMaps: map[types.NamespacedName]*corev1.ConfigMap{at("headers"): {ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "headers"}, Data: map[string]string{"My-Custom-Header": "42"}}},
	}
	for _, name := range []string{"web", "next", "auth", "secure", "none"} {
		o.Services[at(name)] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}}
	}
	for i, text := range c.ingresses {
		one := ingressOf(t, text)
		one.Namespace, one.Name, one.CreationTimestamp, one.Spec.IngressClassName = "a", fmt.Sprintf("i%d", i), metav1.Unix(int64(1000+i), 0), &class
		o.Ingresses = append(o.Ingresses, one)
	}
	return o
}

// ingressOf reads "tls host=NAMES PATHS SERVICE ; annotation=value".
func ingressOf(t *testing.T, text string) *networkingv1.Ingress {
	t.Helper()
	parts := strings.Split(text, " ; ")
	words, hosts, secured := strings.Fields(parts[0]), []string{"h"}, false
	for ; len(words) > 2; words = words[1:] {
		if names, is := strings.CutPrefix(words[0], "host="); is {
			hosts = strings.Split(names, ",")
		} else {
			secured = words[0] == "tls"
		}
	}
	var rules, paths []string
	for path := range strings.SplitSeq(words[0], ",") {
		kind, isPrefix := networkingv1.PathTypePrefix, false
		if path, isPrefix = strings.CutPrefix(path, "Prefix:"); !isPrefix && strings.ContainsAny(path, "*+({[") {
			kind = networkingv1.PathTypeImplementationSpecific
		}
		paths = append(paths, fmt.Sprintf("{path: %q, pathType: %s, backend: {service: {name: %s, port: {number: 80}}}}", path, kind, words[1]))
	}
	for _, name := range hosts {
		host := fmt.Sprintf("host: %q, ", name)
		if strings.Trim(name, "*") == "" {
			host = ""
		}
		rules = append(rules, fmt.Sprintf("{%shttp: {paths: [%s]}}", host, strings.Join(paths, ", ")))
	}
	one := &networkingv1.Ingress{}
	if err := yaml.UnmarshalStrict([]byte("spec: {rules: ["+strings.Join(rules, ", ")+"]}"), one); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if secured {
		one.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: "pair"}}
	}
	one.Annotations = map[string]string{}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, "=")
		one.Annotations[compile.NginxPrefix+name] = value
	}
	return one
}

// play has an engine serve a case, and asks.
func (s *services) play(t *testing.T, c *suiteCase, engine string, e engineUnderTest) {
	said := s.serve(t, s.objects(t, c), e)
	if c.event != "" && !slices.ContainsFunc(said.events, func(text string) bool { return strings.HasPrefix(text, c.event+": ") }) {
		t.Errorf("no Event says %s: %q", c.event, said.events)
	}
	for _, request := range c.requests {
		a := asking{services: s, table: said.table, engine: engine, sockets: e.Sockets(), gateway: compile.IngressGateway, want: map[string]string{}}
		if lacks := a.read(t, request); lacks != "" {
			c.lacks = lacks
		}
		a.ask(t, request)
		if t.Failed() {
			t.Logf("Events: %q", said.events)
			return
		}
	}
}

// compiled is a table, and what was said of the objects.
type compiled struct {
	table  *model.Table
	events []string
}

// serve has an engine serve objects.
func (s *services) serve(t *testing.T, o *compile.Objects, e engineUnderTest) compiled {
	t.Helper()
	out := compile.Compile(o, compile.Options{
		Bind: func(_ types.NamespacedName, port uint16) netip.AddrPort {
			if port == 443 {
				return netip.MustParseAddrPort("127.0.0.2:0")
			}
			return netip.MustParseAddrPort("127.0.0.1:0")
		},
		Endpoints: func(service types.NamespacedName, _ *corev1.ServicePort) []model.Endpoint {
			if at, there := s.at[service.Name]; there {
				return []model.Endpoint{{Addr: at, Weight: 1}}
			}
			return nil
		},
	})
	var said []string
	for _, p := range out.Problems {
		said = append(said, p.Reason+": "+p.Message)
	}
	if err := e.Apply(out.Table); err != nil {
		t.Fatal(err)
	}
	return compiled{out.Table, said}
}

// asking is a request of a case, and what is expected.
type asking struct {
	*services
	table        *model.Table
	engine       string
	sockets      map[string]netip.AddrPort
	gateway      types.NamespacedName
	method       string
	url          *url.URL
	header       http.Header
	times        int
	flags        []string
	statuses     []string
	want         map[string]string // "Name=" to value, "Name~" and "Name!" to a part
	alternatives bool
}

var expectation = regexp.MustCompile(`^([A-Za-z-]+[=~!])(.*)$`)

// read reads a request, and says what the haproxy engine lacks for it, if it is asked.
func (a *asking) read(t *testing.T, text string) string {
	t.Helper()
	question, expected, found := strings.Cut(text, " => ")
	if !found {
		t.Fatalf("%q expects nothing", text)
	}
	words := strings.SplitN(question, " ", 3)
	var err error
	if a.method, a.times = words[0], 1; len(words) < 2 {
		t.Fatalf("%q has no URL", text)
	}
	if a.url, err = url.Parse(words[1]); err != nil {
		t.Fatal(err)
	}
	a.header = http.Header{}
	if len(words) > 2 {
		for part := range strings.SplitSeq(words[2], " & ") {
			if name, value, is := strings.Cut(part, ": "); is {
				a.header.Set(name, value)
				continue
			}
			for word := range strings.FieldsSeq(part) {
				if n, err := strconv.Atoi(strings.TrimPrefix(word, "*")); err == nil {
					a.times = n
				} else {
					a.flags = append(a.flags, word)
				}
			}
		}
	}
	status, rest, _ := strings.Cut(expected, " ")
	a.statuses = strings.Split(status, "|")
	for part := range strings.SplitSeq(rest, " & ") {
		if m := expectation.FindStringSubmatch(part); m != nil {
			a.want[m[1]+strconv.Itoa(len(a.want))] = m[2]
		}
	}
	return a.lacking()
}

// lacking is what haproxy lacks for the request, which it answers with 500 then.
func (a *asking) lacking() string {
	if a.engine != engines.HAProxy {
		return ""
	}
	r := &model.Request{TLS: a.url.Scheme == "https", Method: a.method, Host: a.url.Host, ServerName: a.url.Host, Path: a.url.Path, RawQuery: a.url.RawQuery, Header: a.header}
	for _, s := range a.table.Sockets {
		if s.TLS != r.TLS {
			continue
		}
		if d := s.Decide(r); d.Rule != nil {
			lacks := haproxy.Lacking(d.Rule)
			if lacks != "" {
				a.statuses, a.want, a.times, a.flags = []string{"500"}, nil, 1, without(a.flags, "AT-ONCE", "STAYS", "MOVES")
			}
			return lacks
		}
	}
	return ""
}

func without(list []string, names ...string) []string {
	return slices.DeleteFunc(list, func(one string) bool { return slices.Contains(names, one) })
}

// reply is what counts of an answer.
type reply struct {
	status int
	header http.Header
}

// client connects to the engine, whatever a URL says.
func (a *asking) client() *http.Client {
	to := a.sockets[a.gateway.String()+":"+map[string]string{"http": "80", "https": "443"}[a.url.Scheme]]
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // certificates are others' cases
	if slices.Contains(a.flags, "CERTIFICATE") {
		config.Certificates = []tls.Certificate{*a.ca}
	}
	c := &http.Client{
		Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, to.String())
		}},
	}
	if slices.Contains(a.flags, "STAYS") || slices.Contains(a.flags, "MOVES") {
		c.Jar, _ = cookiejar.New(nil) // which can't fail
	}
	return c
}

// ask asks, and compares.
func (a *asking) ask(t *testing.T, text string) {
	t.Helper()
	c := a.client()
	replies, failures := make(chan *reply, a.times), make(chan error, a.times)
	once := func() {
		r, err := a.once(t.Context(), c)
		if err != nil {
			failures <- err
			return
		}
		replies <- r
	}
	held := slices.Contains(a.flags, "AT-ONCE")
	for range a.times {
		if held {
			go once()
		} else {
			once()
		}
	}
	seen := map[string]int{}
	for i := range a.times {
		select {
		case err := <-failures:
			if a.statuses[0] != "none" {
				t.Fatalf("%s: %v", text, err)
			}
		case r := <-replies:
			a.compare(t, text, r)
			seen[r.header.Get("Service")]++
			seen[strconv.Itoa(r.status)]++
		}
		if held && i+1 == a.times/2 { // the others are held until these were refused
			close(a.release)
		}
	}
	if len(a.statuses) > 1 && seen[a.statuses[0]] != a.times/2 || slices.Contains(a.flags, "STAYS") && (seen["web"] > 0) == (seen["next"] > 0) ||
		a.alternatives && (seen["web"] == 0 || seen["next"] == 0) {
		t.Errorf("%s: answers %v", text, seen)
	}
}

// once asks once.
func (a *asking) once(ctx context.Context, c *http.Client) (*reply, error) {
	body := ""
	if slices.Contains(a.flags, "body") {
		body = "text"
	}
	q, err := http.NewRequestWithContext(ctx, a.method, a.url.String(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header = a.header.Clone()
	response, err := c.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return &reply{response.StatusCode, response.Header}, err
}

// compare holds an answer against what is expected.
func (a *asking) compare(t *testing.T, text string, r *reply) {
	t.Helper()
	if !slices.Contains(a.statuses, strconv.Itoa(r.status)) {
		t.Errorf("%s: answer %d %v", text, r.status, r.header)
	}
	for key, want := range a.want {
		name := strings.TrimRight(key, "0123456789")
		how, name := name[len(name)-1], name[:len(name)-1]
		got := strings.Join(r.header.Values(name), ",")
		right := false
		switch options := strings.Split(want, "|"); {
		case how == '=' && len(options) > 1:
			a.alternatives, right = true, slices.Contains(options, got)
		case how == '=' && name == "Location" && a.gateway != compile.IngressGateway: // routes' have a path (RFC 3986, 6.2.3)
			right = strings.TrimSuffix(got, "/") == strings.TrimSuffix(want, "/")
		case how == '=':
			right = got == want
		case how == '~':
			right = strings.Contains(got, want)
		default:
			right = !strings.Contains(got, want)
		}
		if !right {
			t.Errorf("%s: %s is %q, want %c %q", text, name, got, how, want)
		}
	}
}
