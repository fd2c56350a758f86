package web

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// guard lets in the browser that shows the token of the printed URL, and no
// other. The token is good once: it is exchanged for a cookie. One of a page that is
// shared is good for any number of browsers, as long as the page is served.
type guard struct {
	cookie string     // the cookie's name; ports share cookies, so it has the port in it
	shared netip.Addr // by which others know this machine; invalid for a page that isn't shared
	until  time.Time  // how long it is shared, by the clock on the wall

	mu      sync.Mutex
	session string // the cookie's value
	token   string // "" once it is used
}

// tokenBytes is how much of a token is random.
const tokenBytes = 32

func newGuard(port uint16, shared netip.Addr, until time.Time) *guard {
	return &guard{session: secret(), token: secret(), cookie: fmt.Sprintf("fairway-web-%d", port), shared: shared, until: until.Round(0)}
}

func secret() string {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// redeem takes the token, once.
func (g *guard) redeem(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !same(token, g.token) {
		return false
	}
	if !g.shared.IsValid() {
		g.token = ""
	}
	return true
}

// renew makes another token, such as for another browser. Whoever came by that of a page that is
// shared needs the new one.
func (g *guard) renew() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shared.IsValid() {
		g.session = secret()
	}
	g.token = secret()
	return g.token
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// policy is what the page may load: its own files, and nothing of anybody else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// protect puts the guard before a handler.
func (g *guard) protect(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !isLoopback(r.Host) && !g.isShared(r.Host):
			refuse(w, "this page is served to names of this machine only, not to "+r.Host)
		case g.isOver():
			refuse(w, "the time for which it was shared is over")
		case r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token"):
			g.enter(w, r)
		case !g.knows(r):
			refuse(w, "open the URL that `fairway web` printed. It is good once; press Enter there for another one, or start it again")
		case !sameOrigin(r):
			refuse(w, "another page's requests are not answered")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter exchanges the token for the cookie. The browser goes on by itself, from
// this page: after a redirect from elsewhere it would keep a strict cookie back.
func (g *guard) enter(w http.ResponseWriter, r *http.Request) {
	if !g.knows(r) {
		if !g.redeem(r.URL.Query().Get("token")) {
			refuse(w, "this URL has been used, or is not the one that `fairway web` printed. Press Enter there for another one, or start it again")
			return
		}
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.value(), Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><link rel="icon" href="/icon.svg"><title>Fairway</title><a href="/">Fairway</a></html>`)
}

// knows reports whether a request shows the cookie.
func (g *guard) knows(r *http.Request) bool {
	for _, c := range r.CookiesNamed(g.cookie) {
		if same(c.Value, g.value()) {
			return true
		}
	}
	return false
}

// value is the cookie's.
func (g *guard) value() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.session
}

// isOver reports whether the page is shared no more. Timers, by which it ends, stand still while
// the machine is suspended.
func (g *guard) isOver() bool {
	return g.shared.IsValid() && time.Now().Round(0).After(g.until)
}

// isShared reports whether a Host header has the address at which the page is shared.
func (g *guard) isShared(host string) bool {
	a, err := netip.ParseAddr(hostname(host))
	return err == nil && g.shared.IsValid() && a == g.shared
}

// hostname is what a Host header has before the port; browsers leave out their usual one.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// isLoopback reports whether a Host header names this machine for itself. Any
// other name may be one that an attacker has lead here (DNS rebinding).
func isLoopback(host string) bool {
	name := hostname(host)
	if name == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback()
}

// sameOrigin reports whether a request comes from the page itself, or from the
// user. Browsers say so; what doesn't is no browser, and has shown the cookie.
func sameOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
		return true
	case "none":
		return true // typed, or from a bookmark
	}
	return r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

func refuse(w http.ResponseWriter, why string) {
	http.Error(w, "fairway web: "+why+".", http.StatusForbidden)
}
