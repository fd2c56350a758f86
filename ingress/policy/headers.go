package policy

import (
	"net/http"
	"strings"

	"github.com/fairway-net/fairway/ingress/model"
)

// hopByHop are headers that are about one connection (RFC 9110, 7.6.1).
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// Written says why a route may not set, add or remove a header; "" if it may. Who
// writes the message says where it ends and what the connection is for.
func Written(name string) string {
	switch name = http.CanonicalHeaderKey(name); {
	case name == "Content-Length" || name == "Expect":
		return "header " + name + " says where a message ends, which is the gateway's to say"
	case isHopByHop(name):
		return "header " + name + " is about one connection, and the gateway's"
	}
	return ""
}

// Edit changes headers as a rule says, but for those that are not its to write.
func Edit(h http.Header, e *model.HeaderEdit) {
	for _, s := range e.Set {
		if Written(s.Name) == "" {
			h[s.Name] = []string{s.Value}
		}
	}
	for _, a := range e.Add {
		if Written(a.Name) == "" {
			h[a.Name] = append(h[a.Name], a.Value)
		}
	}
	for _, name := range e.Remove {
		if Written(name) == "" {
			delete(h, name)
		}
	}
	for i := range e.Replace {
		replace(h, &e.Replace[i])
	}
}

// DropHopByHop takes out what is about the connection that h came by.
func DropHopByHop(h http.Header) {
	dropNamed(h)
	for name := range h {
		if isHopByHop(name) {
			delete(h, name)
		}
	}
}

// dropNamed takes out what Connection names.
func dropNamed(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); name != "Host" {
				delete(h, name)
			}
		}
	}
}

// Clean takes out of a client's request what doesn't pass: what is about its connection,
// and what only a proxy may say. Of trusted proxies, the latter stays as it is written.
// A name with underscores or dots that many programs take for such a one goes in any
// case: "X_Real_IP" is X-Real-IP to a CGI program.
func Clean(h http.Header, trusted bool) {
	dropNamed(h)
	for name := range h {
		switch {
		case isHopByHop(name), name == "Host", !trusted && IsProxys(name):
			delete(h, name)
		case strings.ContainsAny(name, "_."):
			if folded := fold(name); IsProxys(folded) || isHopByHop(folded) || folded == "Host" {
				delete(h, name)
			}
		}
	}
}

// DropFolded takes out names with underscores or dots that programs take for one which
// the gateway writes itself.
func DropFolded(h http.Header, isOwn func(name string) bool) {
	for name := range h {
		if strings.ContainsAny(name, "_.") && isOwn(fold(name)) {
			delete(h, name)
		}
	}
}

// Trailed reports whether a field may come after a body. What leads a request, says who
// asks or ends a message may not (RFC 9110, 6.5.1), nor what isOwn calls the gateway's:
// programs that put trailers among headers would believe a client.
func Trailed(name string, isOwn func(name string) bool) bool {
	name = fold(name)
	switch name {
	case "Host", "Content-Length", "Expect", "Authorization", "Cookie", "Content-Type", "Content-Encoding", "Content-Range", "Range", "Max-Forwards":
		return false
	}
	return !isHopByHop(name) && !IsProxys(name) && !isOwn(name)
}

// fold is the name that programs which know no underscores and dots take one for.
func fold(name string) string {
	return http.CanonicalHeaderKey(strings.NewReplacer("_", "-", ".", "-").Replace(name))
}

// IsProxys reports whether a header says what only a proxy can know: where a request
// comes from, and what it was before it was changed. The name is in canonical form.
func IsProxys(name string) bool {
	switch name[0] {
	case 'X':
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Original-") {
			return true
		}
		switch name {
		case "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Rewrite-Url", "X-Scheme", "X-Forwarded", "X-Url-Scheme", "X-Sent-From":
			return true
		}
	case 'F':
		return name == "Forwarded" || name == "Forwarded-For" || name == "Front-End-Https"
	case 'T':
		return name == "True-Client-Ip"
	}
	return false
}

// Dropped is what Clean takes out as regular expressions of names in lower case, for
// engines that are configured with them: from clients, and from trusted proxies.
func Dropped() (clients, proxies string) {
	const (
		proxys = `x-(forwarded(-.*)?|original-.*|(client|real|cluster-client)-ip|rewrite-url|(url-)?scheme|sent-from)|forwarded(-for)?|front-end-https|true-client-ip`
		own    = `http2-settings|keep-alive|proxy-(authenticate|authorization|connection)`
		others = own + `|connection|te|trailer|transfer-encoding|upgrade|host`
	)
	folded := func(list string) string { return strings.ReplaceAll(list, "-", "[-_.]") }
	return "^(" + folded(proxys) + "|" + own + ")$|^(?=.*[_.])(" + folded(others) + ")$",
		"^(" + own + ")$|^(?=.*[_.])(" + folded(proxys+"|"+others) + ")$"
}

// IsWebSocket reports whether a request asks for the one upgrade that passes (RFC 6455,
// 4.1). All others would be tunnels past every rule, h2c first of all.
func IsWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor > 0 && r.Method == http.MethodGet && r.ContentLength == 0 &&
		len(r.Header["Upgrade"]) == 1 && strings.EqualFold(r.Header["Upgrade"][0], "websocket") && hasToken(r.Header["Connection"], "upgrade")
}

func hasToken(lists []string, token string) bool {
	for _, list := range lists {
		for one := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}
