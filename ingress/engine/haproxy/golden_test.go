package haproxy

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden: what a table makes of haproxy: its configuration, maps and programs.
func TestGolden(t *testing.T) {
	for name, table := range goldenTables(t) {
		t.Run(name, func(t *testing.T) {
			s := &slots{}
			p, _, _ := makePlan(table, s, &memos{})
			var b strings.Builder
			b.WriteString(render(p, &settings{
				folder: "/run/haproxy", trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, drain: time.Minute, files: numbers(p), slots: s,
			}))
			for file, entries := range sorted(p.entries) {
				fmt.Fprintf(&b, "\n== %s\n", file)
				for key, value := range sorted(entries) {
					fmt.Fprintln(&b, key, value)
				}
			}
			for _, k := range p.sockets {
				for _, l := range certificateList(k, model.HTTP) {
					fmt.Fprintf(&b, "\n== %s.list\n%s\n", k.id, l)
				}
			}
			for file, text := range sorted(p.programs) {
				fmt.Fprintf(&b, "\n== programs/%s\n%s", file, text)
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("differs from %s (-update writes it):\n%s", path, b.String())
			}
		})
	}
}

func goldenTables(t *testing.T) map[string]*model.Table {
	endpoints := []model.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:8080"), Weight: 1}, {Addr: netip.MustParseAddrPort("[fd00::1]:8080"), Weight: 2}}
	pools := map[string]*model.Pool{
		"ns/web:80":  {Name: "ns/web:80", Endpoints: endpoints},
		"ns/grpc:80": {Name: "ns/grpc:80", Protocol: model.H2C, Algorithm: model.LeastRequests, Endpoints: endpoints[:1]},
		"ns/mq:80":   {Name: "ns/mq:80", Algorithm: model.Source, Proxy: model.ProxyV2, Endpoints: endpoints},
		"ns/tls:443": {Name: "ns/tls:443", Protocol: model.HTTP2, TLS: &model.BackendTLS{ServerName: "inner.example"}, Endpoints: endpoints[:1]},
	}
	host := func(l *model.Listener, name string, rules ...*model.Rule) *model.Listener {
		l.SetHosts(append(l.Hosts(), &model.Host{Hostname: name, Rules: rules}))
		return l
	}
	odd := rule("/odd", "ns/web:80")
	odd.Match.Method = "POST"
	odd.Match.Headers = []model.ValueMatch{{Name: "X-Odd", Value: "\"]]\n%[src] ${HOME} # ; <<"}, {Name: "Version", Value: "v.", Regexp: regexp.MustCompile("^(?:v.)$")}}
	odd.Action.Response.Set = []model.Header{{Name: "X-Odd", Value: "a\"b\\c"}}
	odd.Action.BasicAuth = &model.BasicAuth{Realm: "r", Users: map[string]string{`u"]=`: "{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M="}}
	open := host(&model.Listener{Name: "ns/gw/http"}, "web.example", odd, rule("/mq", "ns/mq:80"), rule("/", "ns/web:80"))
	host(open, "*.example", rule("/", "ns/grpc:80"))
	secure := host(&model.Listener{Name: "ns/gw/https", Hostname: "h.example", Certificates: []*tls.Certificate{certificate(t, 1)}}, "h.example", rule("/", "ns/tls:443"))
	through := host(&model.Listener{Name: "ns/gw/tls", Hostname: "*.through.example", Mode: model.Passthrough}, "*.through.example", rule("/", "ns/mq:80"))
	bind := netip.MustParseAddrPort
	return map[string]*model.Table{
		"requests": {Pools: pools, Sockets: []*model.Socket{{Name: "ns/gw:80", Port: 80, Bind: bind("[::]:20000"), Listeners: []*model.Listener{open}}}},
		"streams":  {Pools: pools, Sockets: []*model.Socket{{Name: "ns/gw:443", Port: 443, TLS: true, Bind: bind("[::]:20001"), Listeners: []*model.Listener{secure, through}}}},
	}
}
