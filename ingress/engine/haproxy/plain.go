package haproxy

import (
	"fmt"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// Most requests are plain: no body, a path and headers of which nothing
// has to be changed, for a host whose requests all go to one backend as they are.
// haproxy finds out by two expressions and one map, and tries no other rule. What
// looks otherwise passes all rules, which decide the same.

// plainPath is in normal form: it has no escape, and no segment that is empty or begins
// with a dot. A query may follow.
const plainPath = `'^/(?![./])(?>(?:[^/?%\\]*+/(?![./]))*)[^/?%\\]*+(?:[?]|\z)'`

// plainLines are headers that go on as they are: no control character in them, and
// none that is about the connection, about a body or about the client. Nor has a name
// underscores or dots, for which it might be taken for such a one.
const plainLines = `(?>(?:(?!connection: (?!keep-alive\r|close\r)|content-length:|forwarded|front-end-|host:|http2-|keep-alive:|proxy-|te:|trailer:|transfer-encoding:|true-|upgrade:|` +
	`x-(?:client|cluster|forwarded|original|real|rewrite|scheme|sent|url)-?)[^\x00-\x20:_.\x7f]++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*)`

// plainHeaders are such headers with one Host among them.
const plainHeaders = `'^` + plainLines + `host:[^\x00-\x08\x0a-\x1f\x7f]++\r\n` + plainLines + `\r\n\z'`

// plainHost puts a host into the map of those whose requests all go to one backend
// as they are, however it is matched otherwise.
func (p *planner) plainHost(s *socket, l *listener, h *model.Host) {
	file := s.id + "f.map"
	entries := p.entries(file)
	if l.model.Mode != model.HTTP || !strings.HasPrefix(l.id, "a") || !isHostname(h.Hostname) || strings.HasSuffix(h.Hostname, ".") || s.model.Listener(h.Hostname) != l.model {
		return
	}
	for _, r := range h.Rules {
		if r.Match.Kind != model.PathPrefix || strings.TrimSuffix(r.Match.Path, "/") != "" {
			return
		}
	}
	if value := p.entries(s.id + "p.map")[l.id+"|"+h.Hostname+"|/"]; !strings.HasPrefix(value, "l") && !strings.HasPrefix(value, "e") {
		entries[h.Hostname] = value
	}
}

// plain writes how plain requests are found.
func (c *config) plain(s *socket) {
	own := ""
	if s.model.TLS && s.named { // a connection belongs to the listener of its server name
		c.add("http-request set-var(txn.host) req.fhdr(host)")
		own = " { ssl_fc_sni,strcmp(txn.host) eq 0 }"
	}
	looks := func(target string) string { // which HTTP/2 always has whole
		return fmt.Sprintf("{ method GET HEAD OPTIONS TRACE } { %s -m reg %s } { req.hdrs -m reg %s }%s", target, plainPath, plainHeaders, own)
	}
	c.add("http-request set-var(txn.v) req.fhdr(host),map_str(%s) if %s || { req.ver 2.0 } %s", c.path(s.id+"f.map"), looks("url"), looks("path"))
	const found = "if { var(txn.v) -m found }"
	c.add("http-request add-header x-forwarded-for %%[src] %s", found)
	c.add("http-request add-header x-real-ip %%[src] %s", found)
	c.add("http-request add-header x-forwarded-host %%[req.fhdr(host)] %s", found)
	c.add("http-request add-header x-forwarded-proto %s %s", scheme(s), found)
	if c.logTo != "" {
		c.add("http-request set-var(txn.host) req.fhdr(host) %s", found)
		c.add("http-request set-var(txn.path) path %s", found)
	}
	c.add("http-request allow %s", found)
}

func scheme(s *socket) string {
	if s.model.TLS {
		return "https"
	}
	return "http"
}
