package haproxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairway-net/fairway/ingress/model"
)

// settings are what a configuration says besides the table.
type settings struct {
	folder    string // with all files
	trusted   []netip.Prefix
	proxyFrom []netip.Prefix
	perClient int
	logTo     string        // a Unix socket; "" logs nothing
	drain     time.Duration // how long connections may go on
	files     map[string]int
	slots     *slots
}

// render writes the configuration: numbers, names of this program's own, and
// hexadecimal digits. All that comes from elsewhere is in maps, and in programs
// that are never run.
func render(p *plan, s *settings) string {
	c := &config{settings: s}
	c.global(p.sockets)
	for _, k := range p.sockets {
		c.socket(k)
	}
	c.fixed()
	c.keep(p)
	for i := range s.slots.kinds {
		c.backend(i, p.backends[i])
	}
	return c.String()
}

// config is a configuration in the making.
type config struct {
	*settings
	strings.Builder
}

func (c *config) section(format string, a ...any) { fmt.Fprintf(&c.Builder, format+"\n", a...) }
func (c *config) add(format string, a ...any)     { fmt.Fprintf(&c.Builder, "\t"+format+"\n", a...) }

func (c *config) path(name string) string { return c.folder + "/" + name }

// requestMaps are the sockets that have maps of rules for requests.
func requestMaps(list []*socket) []string {
	var out []string
	for _, s := range list {
		if !s.model.TLS || hasCertificate(s) {
			out = append(out, s.id)
		}
	}
	return out
}

func (c *config) global(sockets []*socket) {
	c.section("global")
	c.add("stats socket unix@%s mode 600 level admin", c.path("control"))
	c.add("stats timeout 1m")
	c.add("hard-stop-after %dms", c.drain.Milliseconds())
	c.add("tune.bufsize 16384") // a request that may be sent again is kept in another
	c.add("tune.maxrewrite 2048")
	c.add("tune.pattern.cache-size 0") // looking for an answer takes longer than finding it
	c.add("tune.http.maxhdr 512")
	c.add("tune.h2.max-concurrent-streams 250")
	c.add("tune.ssl.cachesize 0")
	c.add("tune.ssl.default-dh-param 2048")
	c.add("tune.lua.forced-yield 100000")
	c.add("ssl-default-bind-options ssl-min-ver TLSv1.2")
	c.add("ssl-default-bind-ciphers %s", ciphers)
	c.add("ssl-default-server-options ssl-min-ver TLSv1.2")
	c.add("crt-base %s", c.folder)
	c.add("ca-base %s", c.folder)
	c.add("setenv FAIRWAY_PROGRAMS %s", c.path("programs"))
	if list := requestMaps(sockets); len(list) > 0 {
		c.add("setenv FAIRWAY_MAPS %s", c.folder)
		c.add("setenv FAIRWAY_SOCKETS \"%s\"", strings.Join(list, " "))
	}
	c.add("lua-load-per-thread %s", c.path("fairway.lua"))
	if c.logTo != "" {
		c.add("log %s len %d format raw local0 info", c.logTo, maxLine)
	}
	c.section("defaults")
	c.add("mode http")
	c.add("timeout http-request 10s")
	c.add("timeout http-keep-alive 2m")
	c.add("timeout client 1h") // of one that says nothing, or takes nothing of a stream of HTTP/2; see unreadTimeout
	c.add("timeout server 24h")
	c.add("timeout tunnel 24h")
	c.add("timeout connect 5s")
	c.add("option redispatch 1")
	c.add("option splice-auto")
	c.add("option idle-close-on-response") // of one that is replaced: a client may be sending
	c.add("retries 6")                     // an endpoint that was tried may be tried again, and haproxy may not know yet which have gone
	c.add("retry-on conn-failure empty-response")
	for _, status := range []int{400, 403, 404, 405, 408, 421, 500, 502, 503, 504} {
		c.add("http-error status %d content-type \"text/plain; charset=utf-8\" string \"%s\\n\"", status, http.StatusText(status))
	}
}

// ciphers are those of TLS 1.2 that the native engine has: who gets the key later can't
// read what was said before.
const ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA"

// socket writes what serves one of the table's sockets.
func (c *config) socket(s *socket) {
	fd := fmt.Sprintf("fd@%d tcp-ut %dms", c.files[s.model.Bind.String()], unreadTimeout.Milliseconds())
	switch {
	case !s.model.TLS:
		c.requests(s, s.id, fd)
	case !s.mixed:
		c.requests(s, s.id, fd+c.secured(s, model.HTTP, s.id))
	default:
		c.sorted(s, fd)
		c.inner(s, model.HTTP, "h")
		c.inner(s, model.Terminate, "t")
	}
}

// secured is how a port ends TLS; " ssl" is missing if there is no certificate.
func (c *config) secured(s *socket, mode model.Mode, list string) string {
	if len(certificateList(s, mode)) == 0 {
		return ""
	}
	out := " ssl crt-list " + c.path(list+".list")
	if !slices.ContainsFunc(s.listener, func(l *listener) bool { return l.model.Mode == mode && l.model.Hostname == "" }) {
		out += " strict-sni"
	}
	if slices.ContainsFunc(s.listener, func(l *listener) bool { return l.model.Clients != nil }) {
		out += " no-tls-tickets" // a session must not outlive what is asked of clients
	}
	return out
}

// certificateList has a line for each certificate: the one for any name first.
func certificateList(s *socket, mode model.Mode) []string {
	var lines []string
	for _, l := range s.listener {
		if l.model.Mode != mode {
			continue
		}
		if l.model.Hostname == "" {
			lines = append(slices.Clone(l.lines), lines...)
		} else {
			lines = append(lines, l.lines...)
		}
	}
	return lines
}

// sorted writes a port where TLS is for several purposes: by server name.
func (c *config) sorted(s *socket, bind string) {
	c.section("frontend %s", s.id)
	c.add("mode tcp")
	c.add("bind %s", bind)
	c.add("maxconn %d", maxConnections)
	c.clients()
	c.proxies()
	c.add("tcp-request inspect-delay 10s")
	c.add("tcp-request content reject unless { req.ssl_hello_type 1 }") // which waits for it
	c.add("tcp-request content set-var(txn.host) req.ssl_sni,lower")
	c.add("tcp-request content set-var(txn.host) str(-) unless { var(txn.host) -m found }")
	c.streams(s)
	c.add("use_backend %sh if { var(txn.l) -m beg a c }", s.id)
	c.add("use_backend %st if { var(txn.l) -m beg t }", s.id)
	c.add("use_backend %%[var(txn.v)]")
	for _, kind := range []string{"h", "t"} {
		c.section("backend %s%s", s.id, kind)
		c.add("mode tcp")
		c.add("retry-on conn-failure")
		c.add("server inner unix@%s send-proxy-v2", c.path(s.id+kind+".sock"))
	}
}

// inner writes what ends TLS behind such a port.
func (c *config) inner(s *socket, mode model.Mode, kind string) {
	bind := "unix@" + c.path(s.id+kind+".sock") + " mode 600 accept-proxy"
	secured := c.secured(s, mode, s.id+kind)
	if mode == model.HTTP && secured != "" {
		c.requests(s, s.id+kind, bind+secured)
		return
	}
	c.section("frontend %s%s", s.id, kind)
	c.add("mode tcp")
	c.add("bind %s%s", bind, secured)
	c.add("maxconn %d", maxConnections)
	if secured == "" {
		c.add("tcp-request connection reject")
		return
	}
	c.add("tcp-request content set-var(txn.host) ssl_fc_sni,lower")
	c.add("tcp-request content set-var(txn.host) str(-) unless { var(txn.host) -m found }")
	c.streams(s)
	c.add("use_backend %%[var(txn.v)]")
}

// streams writes which backend a connection has, by its server name.
func (c *config) streams(s *socket) {
	const rule = "tcp-request content"
	c.find(rule, "txn.l", "txn.host", s.named, s.model.OneLabel, s.wild, "", func(key string) string {
		return fmt.Sprintf("%s,map_str(%s)", key, c.path(s.id+"l.map"))
	})
	c.find(rule, "txn.v", "txn.host", true, s.model.OneLabel, s.hostWild, "{ var(txn.l) -m beg t p }", func(key string) string {
		return fmt.Sprintf("var(txn.l),concat(|),concat(,txn.k),concat(|/),map_str(%s)", c.path(s.id+"p.map"))
	})
	c.add("%s lua.stream if { var(txn.v) -m beg l }", rule)
	c.add("%s reject unless { var(txn.l) -m beg a c t } || { var(txn.v) -m found }", rule)
}

// find writes the search for a name: as it is, for what its asterisks may stand
// for, the longest ending first, and for any. If nothing has a name, only for any.
func (c *config) find(rule, variable, name string, named, oneLabel bool, wild []int, condition string, lookup func(key string) string) {
	step := func(key, more string) {
		when := ""
		if condition+more != "" {
			when = " if " + strings.TrimSpace(condition+more)
		}
		c.add("%s set-var(txn.k) %s%s", rule, key, when)
		c.add("%s set-var(%s) %s%s", rule, variable, lookup("var(txn.k)"), when)
	}
	more := " !{ var(" + variable + ") -m found }"
	if !named {
		step("str(*)", "")
		return
	}
	step("var("+name+")", "")
	for _, depth := range wild {
		step(fmt.Sprintf("var(%s),%s", name, wildcard(depth, oneLabel)), more)
	}
	step("str(*)", more)
}

// wildcard makes "*.example.com" of a name with two labels, and one or more before them.
func wildcard(depth int, oneLabel bool) string {
	if oneLabel {
		return fmt.Sprintf(`"regsub('^[^.]+(([.][^.]*){%d})\$','*\\1')"`, depth)
	}
	return fmt.Sprintf(`"regsub('^.+?(([.][^.]*){%d})\$','*\\1')"`, depth)
}

// maxConnections is that of a port; haproxy's own follows from how many files it
// may open.
const maxConnections = 200_000

// proxies writes whose connections begin with a header of the PROXY protocol.
func (c *config) proxies() {
	if len(c.proxyFrom) > 0 {
		c.add("tcp-request connection expect-proxy layer4 if { src %s }", prefixes(c.proxyFrom))
	}
}

// clients writes how many connections each client may have.
func (c *config) clients() {
	if c.perClient == 0 {
		return
	}
	others := ""
	if list := slices.Concat(c.proxyFrom, c.trusted); len(list) > 0 {
		others = " !{ src " + prefixes(list) + " }"
	}
	when := ""
	if others != "" {
		when = " if" + others
	}
	// A socket of both families has IPv4 as ::ffff:a.b.c.d, of which 64 bits say nothing.
	c.add("tcp-request connection set-src src,regsub(^::ffff:,) if { src ::ffff:0:0/96 }")
	c.add("tcp-request connection track-sc0 src,ipmask(32,64) table clients%s", when)
	c.add("tcp-request connection reject if { sc0_conn_cur gt %d }%s", c.perClient, others)
}

func prefixes(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
		if p.Addr().Is4() { // as a socket of both families has it
			out = append(out, "::ffff:"+p.Addr().String()+"/"+strconv.Itoa(p.Bits()+96))
		}
	}
	return strings.Join(out, " ")
}

// fixed writes the backends that are haproxy's own answers.
func (c *config) fixed() {
	if c.perClient > 0 {
		c.section("backend clients")
		c.add("stick-table type ipv6 size 1m expire 10m store conn_cur")
	}
	for _, one := range []int{500, 502, 503} {
		c.section("backend e%d", one)
		c.add("http-request deny deny_status %d", one)
	}
}

// keep writes what has haproxy read the authorities and certificates that servers
// may be given while it runs.
func (c *config) keep(p *plan) {
	c.section("backend kept")
	i := 0
	for name := range sorted(p.kept) {
		switch {
		case name == systemAuthorities:
			c.add("server system 127.0.0.1:9 disabled ssl verify required ca-file @system-ca")
		case strings.HasPrefix(name, "ca"):
			c.add("server k%d 127.0.0.1:9 disabled ssl verify required ca-file %s", i, name)
		case strings.HasPrefix(name, "own"):
			c.add("server k%d 127.0.0.1:9 disabled ssl verify none crt %s", i, name)
		}
		i++
	}
}

// backend writes a slot with the servers that it has.
func (c *config) backend(number int, list map[string]server) {
	k := c.slots.kinds[number]
	c.section("backend %s", k.backend(number))
	if k.stream {
		c.add("mode tcp")
		c.add("retry-on conn-failure")
	}
	switch k.algorithm {
	case model.LeastRequests:
		c.add("balance leastconn")
	case model.Source:
		c.add("balance source")
		c.add("hash-type consistent djb2 avalanche")
	default:
		c.add("balance roundrobin")
	}
	if k.private {
		c.add("http-reuse never")
	}
	if k.connect > 0 {
		c.add("timeout connect %dms", max(k.connect.Milliseconds(), 1))
	}
	if k.timed {
		c.add("http-request set-timeout server var(txn.to) if { var(txn.to) -m found }")
	}
	if !k.stream {
		c.tries(&k)
	}
	if k.sticky {
		c.add("use-server %%[var(txn.s)] if { var(txn.s) -m found }")
	}
	for name := range sorted(list) {
		s := list[name]
		c.add("server %s", s.line(name))
	}
}

// tries writes when a request is sent again, if the rule says so.
func (c *config) tries(k *kind) {
	if k.attempts < 0 {
		return
	}
	if k.attempts == 0 {
		c.add("retries 0")
		return
	}
	on := "conn-failure"
	if k.broken {
		on += " empty-response"
	}
	if k.late || strings.Contains(k.codes, " 504") {
		on += " response-timeout"
	}
	c.add("retries %d", k.attempts)
	c.add("retry-on %s%s", on, k.codes)
}
