package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client is the address that a request comes from: the connection's peer, or whom trusted
// proxies name, from the last one backwards to the first that isn't trusted.
func Client(peer netip.Addr, h http.Header, trusted []netip.Prefix) (client netip.Addr, isTrusted bool) {
	peer = peer.Unmap()
	if !Contains(trusted, peer) {
		return peer, false
	}
	client = peer
	chain := strings.Split(strings.Join(h["X-Forwarded-For"], ","), ",")
	for _, one := range slices.Backward(chain) {
		a, err := netip.ParseAddr(strings.TrimSpace(one))
		if err != nil {
			break
		}
		client = a.Unmap()
		if !Contains(trusted, client) {
			break
		}
	}
	return client, true
}

// Contains reports whether an address is in one of the ranges.
func Contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// schemeOf is the scheme by which a client came, as trusted proxies say: the first of
// several is the client's. It is "" if they don't say.
func schemeOf(h http.Header) string {
	first, _, _ := strings.Cut(h.Get("X-Forwarded-Proto"), ",")
	switch strings.ToLower(strings.TrimSpace(first)) {
	case "":
		return ""
	case "https", "wss":
		return "https"
	}
	return "http"
}
