package native

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairway-net/fairway/ingress/model"
	"github.com/fairway-net/fairway/ingress/policy"
)

// guard says why a request isn't let in; 0 if it is. In any case, leave must follow. How
// often a client asks counts before who it is, as in nginx: who guesses passwords is
// held up, too.
func (x *exchange) guard(w http.ResponseWriter, r *http.Request) (status int, reason string) {
	a := x.action
	if a.Limit != nil && !policy.Contains(a.Limit.Except, x.client) {
		if x.entered = x.engine.limiters.enter(a, x.client); !x.entered {
			return http.StatusServiceUnavailable, "the client asks too often"
		}
	}
	known := x.isLetIn()
	if !known && !(a.AnyOf && (a.BasicAuth != nil || a.Auth != nil)) {
		return http.StatusForbidden, "the client's address is not let in"
	}
	x.vouched = known && a.AnyOf && (a.Allow != nil || len(a.Deny) > 0)
	switch i := a.Identity; {
	case i != nil && i.Subject != nil && !i.Subject.MatchString(policy.Subject(r.TLS)):
		return http.StatusForbidden, "the client's certificate is not one of those that are let in"
	case a.MaxBody > 0 && r.ContentLength > a.MaxBody:
		return http.StatusRequestEntityTooLarge, "the body is too long"
	}
	if b := a.BasicAuth; b != nil && !x.vouched {
		name, password, given := r.BasicAuth()
		hash, known := b.Users[name]
		switch ok := given && known && policy.MatchesHash(hash, password); {
		case ok:
			x.vouched = a.AnyOf
		case !a.AnyOf || a.Auth == nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="`+b.Realm+`", charset="UTF-8"`)
			return http.StatusUnauthorized, "name and password are asked for"
		}
	}
	return 0, ""
}

// isLetIn reports whether the client's address is.
func (x *exchange) isLetIn() bool {
	a := x.action
	return !policy.Contains(a.Deny, x.client) && (a.Allow == nil || policy.Contains(a.Allow, x.client))
}

// leave ends what guard began.
func (x *exchange) leave() {
	if x.entered {
		x.engine.limiters.leave(x.action, x.client)
	}
}

// limiters count each client's requests to rules. Idle clients are forgotten.
type limiters struct {
	mu      sync.Mutex
	clients map[limitKey]*limited
	swept   time.Time
}

type limitKey struct {
	of        string
	perSecond float64 // who changes a limit has it count from the beginning
	burst     int
	client    netip.Prefix // see clientRange
}

func keyOf(l *model.Limit, client netip.Addr) limitKey {
	return limitKey{l.Of, l.PerSecond, l.Burst, clientRange(client)}
}

type limited struct {
	rate   *rate.Limiter
	active atomic.Int64
	seen   time.Time
}

const forgetAfter = time.Minute

func (l *limiters) enter(a *model.Action, client netip.Addr) bool {
	now := time.Now()
	l.mu.Lock()
	if l.clients == nil {
		l.clients = map[limitKey]*limited{}
	}
	if now.Sub(l.swept) > forgetAfter {
		l.swept = now
		for k, c := range l.clients {
			if now.Sub(c.seen) > forgetAfter && c.active.Load() == 0 {
				delete(l.clients, k)
			}
		}
	}
	key := keyOf(a.Limit, client)
	c := l.clients[key]
	if c == nil {
		c = &limited{}
		if a.Limit.PerSecond > 0 {
			c.rate = rate.NewLimiter(rate.Limit(a.Limit.PerSecond), max(a.Limit.Burst, 1))
		}
		l.clients[key] = c
	}
	c.seen = now
	active := c.active.Add(1)
	l.mu.Unlock()
	if a.Limit.Connections > 0 && active > int64(a.Limit.Connections) || c.rate != nil && !c.rate.AllowN(now, 1) {
		c.active.Add(-1)
		return false
	}
	return true
}

func (l *limiters) leave(a *model.Action, client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.clients[keyOf(a.Limit, client)]; c != nil {
		c.active.Add(-1)
	}
}
