package haproxy

import (
	"fmt"

	"github.com/fairway-net/fairway/ingress/policy"
)

// requests writes what becomes of requests at a port: in the order of
// [model.Socket.Decide].
func (c *config) requests(s *socket, name, bind string) {
	c.section("frontend %s", name)
	c.add("bind %s", bind)
	c.add("maxconn %d", maxConnections)
	if name == s.id {
		c.clients()
		c.proxies()
	}
	if s.model.TLS && !hasCertificate(s) {
		c.add("tcp-request connection reject")
		return
	}
	if c.logTo != "" {
		c.add("log global")
		c.add("option dontlognull")
		c.add("%s", logFormat())
		c.noted()
	}
	c.mapped(s)
	c.plain(s)
	c.admit(s)
	c.clean()
	c.add("http-request return status 200 content-type text/plain lf-string %%[path,map_str(%s)] if { path -m beg /.well-known/acme-challenge/ } { path,map_str(%s) -m found }", c.path(s.id+challenges), c.path(s.id+challenges))
	c.listener(s)
	c.rules(s)
	c.forwarded(s)
	c.add("http-request lua.act if { var(txn.v) -m str l }")
	c.add("http-request disable-l7-retry if { var(txn.once) -m found } !{ var(txn.v) -m beg r }")
	c.add("http-response set-var(txn.answered) bool(true) if { status 503 }")
	c.add("http-response lua.respond if { var(txn.r) -m found }")
	c.add("http-after-response set-status 502 if { status 503 } !{ var(txn.answered) -m found } { be_name,nbsrv gt 0 }")
	c.add("use_backend %%[var(txn.v)]")
	c.add("default_backend e503")
}

func hasCertificate(s *socket) bool {
	for _, l := range s.listener {
		if len(l.lines) > 0 {
			return true
		}
	}
	return false
}

// admit refuses what is no request, and says of the others what they are found by.
func (c *config) admit(s *socket) {
	c.add("http-request deny deny_status 405 if { method CONNECT }")
	c.add("http-request deny deny_status 405 if { req.ver 2.0 } { req.fhdr(upgrade) -m found } !{ req.fhdr(upgrade) -m str -i websocket }") // how haproxy writes CONNECT for another protocol (RFC 8441)
	c.add("http-request deny deny_status 400 if { req.fhdr_cnt(host) gt 1 }")
	c.add("http-request deny deny_status 400 if !{ req.fhdr(host) -m found } !{ req.ver 1.0 }")
	c.add("http-request deny deny_status 400 if { req.fhdr(host) -m found } !{ req.fhdr(host) -m reg \"^[][A-Za-z0-9._~!&()*+,;=:%%\\$'-]+\\$\" }")
	c.add("http-request deny deny_status 400 if { req.ver 1.0 } { req.fhdr(transfer-encoding) -m found }")
	c.add("http-request deny deny_status 400 if { req.hdrs -m reg '[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]' }")
	long := "{ req.ver 2.0 } { req.fhdr(content-length) -m int gt 0 }" // than the stream is, perhaps
	c.add("http-request wait-for-body time 10s at-least 1 if %s", long)
	c.add("http-request deny deny_status 400 if %s { req.body_len eq 0 }", long)
	if s.model.TLS {
		c.add("http-request set-var(txn.tls) int(1)")
	}
	if len(c.trusted) > 0 {
		c.add("acl trusted src %s", prefixes(c.trusted))
		c.add("http-request set-var(txn.scheme) str(http) if trusted { req.hdr(x-forwarded-proto) -m found }")
		c.add("http-request set-var(txn.scheme) str(https) if trusted { req.hdr(x-forwarded-proto,1) -m str -i https wss }")
	}
	c.add("http-request set-var(txn.host) req.fhdr(host),host_only,lower")
	c.add("http-request set-var(txn.host) var(txn.host),regsub([.]$,) if { var(txn.host) -m end . }")
	c.add("http-request set-var(txn.host) str(-) unless { var(txn.host) -m found }")
	c.add("http-request set-var(txn.path) path")
	c.add("http-request set-uri %%[pathq] if { url -m beg -i http:// https:// } !{ req.ver 2.0 }") // endpoints get paths
	c.add(`http-request lua.normal if { path -m sub // /. %% '\' } || !{ path -m beg / }`)
}

// clean takes out of the client's headers what doesn't pass; see policy.Clean.
func (c *config) clean() {
	c.add("http-request lua.hop if { req.fhdr(connection) -m found } !{ req.fhdr(connection) -m str -i close keep-alive upgrade }")
	clients, proxies := policy.Dropped()
	if len(c.trusted) > 0 {
		c.add(`http-request del-header '%s' -m reg if trusted`, proxies)
		c.add(`http-request del-header '%s' -m reg unless trusted`, clients)
	} else {
		c.add(`http-request del-header '%s' -m reg`, clients)
	}
	c.add("http-request del-header te unless { req.hdr(te) -m str -i trailers }")
	c.add("http-request set-header te trailers if { req.hdr(te) -m str -i trailers }")
	const other = "{ req.fhdr(upgrade) -m found } !{ req.fhdr(upgrade) -m str -i websocket } || { req.fhdr(upgrade) -m found } !{ method GET } || { req.fhdr_cnt(upgrade) gt 1 }"
	c.add("http-request set-var(txn.tunnel) bool(true) if %s", other)
	c.add("http-request del-header connection if { var(txn.tunnel) -m found }")
	c.add("http-request del-header upgrade if { var(txn.tunnel) -m found }")
}

// mapped writes addresses of IPv4 as such, which a socket of both families has as
// ::ffff:a.b.c.d.
func (c *config) mapped(s *socket) {
	const one = "set-src src,regsub(^::ffff:,) if { src ::ffff:0:0/96 }"
	switch {
	case s.model.Bind.Addr().Is4() && len(c.proxyFrom) == 0:
	case s.mixed || len(c.proxyFrom) > 0: // a header of the PROXY protocol says who asks, later
		c.add("http-request %s", one)
	case c.perClient == 0:
		c.add("tcp-request connection %s", one)
	}
}

// listener finds the one that takes the request.
func (c *config) listener(s *socket) {
	lookup := func(key string) string { return fmt.Sprintf("%s,map_str(%s)", key, c.path(s.id+"l.map")) }
	if s.model.TLS {
		c.add("http-request set-var(txn.sni) ssl_fc_sni,lower")
		c.add("http-request set-var(txn.sni) str(-) unless { var(txn.sni) -m found }")
		c.find("http-request", "txn.o", "txn.sni", s.named, s.model.OneLabel, s.wild, "", lookup)
		c.add("http-request return status 421 content-type \"text/plain; charset=utf-8\" string \"Misdirected Request\\n\" if { var(txn.o) -m str %s }", misdirected)
		c.add("http-request reject unless { var(txn.o) -m beg a c }")
		c.add("http-request reject if { var(txn.o) -m beg c } !{ ssl_c_used }")
	}
	c.find("http-request", "txn.l", "txn.host", s.named, s.model.OneLabel, s.wild, "", lookup)
	if s.model.TLS {
		c.add("http-request return status 421 content-type \"text/plain; charset=utf-8\" string \"Misdirected Request\\n\" unless { var(txn.l),strcmp(txn.o) eq 0 }")
	}
}

// rules finds the first that matches, from the most specific of hosts on.
func (c *config) rules(s *socket) {
	level := func(key, first string) {
		condition := " if !{ var(txn.v) -m found }"
		if first != "" {
			condition = ""
		}
		c.add("http-request set-var(txn.k) var(txn.l),concat(|),concat(%s),concat(|,txn.path)%s", key, condition)
		c.add("http-request set-var(txn.v) var(txn.k),map_str(%s)%s", c.path(s.id+"x.map"), condition)
		c.add("http-request set-var(txn.v) var(txn.k),concat(/),map_beg(%s) if !{ var(txn.v) -m found }", c.path(s.id+"p.map"))
		c.add("http-request lua.decide if { var(txn.v) -m beg l } !{ var(txn.v) -m str l }")
	}
	level(",txn.host", "first")
	for _, depth := range s.hostWild {
		c.add("http-request set-var(txn.w) var(txn.host),%s if !{ var(txn.v) -m found }", wildcard(depth, s.model.OneLabel))
		level(",txn.w", "")
	}
	level("*", "")
	c.add("http-request set-var(txn.maps) str(%s) if { var(txn.other) -m found }", s.id)
	if s.model.OneLabel {
		c.add("http-request set-var(txn.label) int(1) if { var(txn.other) -m found }")
	}
	c.add("http-request lua.certain if { var(txn.other) -m found }")
	c.add("http-request return status 404 content-type \"text/plain; charset=utf-8\" string \"Not Found\\n\" unless { var(txn.v) -m found }")
}

// forwarded writes the client's address for endpoints; what clients say of it isn't believed.
func (c *config) forwarded(s *socket) {
	trusted := ""
	c.add("http-request set-var(txn.src) src,hex if { var(txn.v) -m str l }")
	c.add("http-request set-var(txn.body) bool(true) if { var(txn.bounded) -m found } !{ method GET HEAD }")
	c.add("http-request wait-for-body time 10s if { var(txn.bounded) -m found } !{ req.fhdr(content-length) -m found }")
	c.add("http-request set-var(txn.whole) req.body_len if { var(txn.bounded) -m found } !{ req.fhdr(content-length) -m found }")
	if len(c.trusted) > 0 {
		c.add("http-request set-var(txn.src) src,hex if trusted")
		c.add("http-request lua.client if trusted { req.fhdr(x-forwarded-for) -m found }")
		c.add("http-request set-src var(txn.client) if { var(txn.client) -m found }")
		trusted = " unless trusted { req.fhdr(%s) -m found }"
	}
	c.add("http-request set-var(txn.once) bool(true) if !{ method GET HEAD OPTIONS TRACE } || { req.hdr(content-length) -m found } || { req.hdr(transfer-encoding) -m found } || { req.hdr(upgrade) -m found }")
	condition := func(name string) string {
		if trusted == "" {
			return ""
		}
		return fmt.Sprintf(trusted, name)
	}
	c.add("http-request set-header x-forwarded-for %%[src]")
	c.add("http-request set-header x-real-ip %%[src]")
	c.add("http-request set-header x-forwarded-host %%[req.fhdr(host)]%s", condition("x-forwarded-host"))
	c.add("http-request set-header x-forwarded-proto %s%s", scheme(s), condition("x-forwarded-proto"))
}
