package apiserver

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/fairway-net/fairway/apiserver/identity"
)

const (
	// recheckPeriod is how often credentials are looked at again whose requests last.
	recheckPeriod = 10 * time.Second
	// revokedPeriod is how often it is looked at whether any were revoked.
	revokedPeriod = 500 * time.Millisecond
)

// longRunning ends watches, and the like, whose credential has ceased to hold: it was
// revoked, has expired, or what it is bound to is gone.
type longRunning struct {
	authenticator authenticator.Request

	mu          sync.Mutex
	credentials map[string]*credential
}

// credential is what requests that last came with.
type credential struct {
	request  *http.Request // that has the credential and nothing else
	requests map[*context.CancelFunc]struct{}
}

func newLongRunning(a authenticator.Request) *longRunning {
	return &longRunning{authenticator: a, credentials: map[string]*credential{}}
}

// authorizationKey is where a request's header is kept: the library takes it away
// once it knows who asks.
type authorizationKey struct{}

// remember keeps the Authorization header for those behind.
func (l *longRunning) remember(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if header := req.Header.Get("Authorization"); header != "" {
			req = req.WithContext(context.WithValue(req.Context(), authorizationKey{}, header))
		}
		next.ServeHTTP(w, req)
	})
}

// follow ends requests that last when their credential no longer holds. It stands
// behind authentication.
func (l *longRunning) follow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		who, known := request.UserFrom(req.Context())
		if !ok || !known || !isLongRunning(req, info) || who.GetName() == user.Anonymous {
			next.ServeHTTP(w, req)
			return
		}
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer l.add(req, &cancel)()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// add has a request ended when its credential no longer holds. The function that
// it returns forgets the request.
func (l *longRunning) add(req *http.Request, end *context.CancelFunc) (forget func()) {
	header, _ := req.Context().Value(authorizationKey{}).(string)
	key := header
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		key += "\n" + string(req.TLS.PeerCertificates[0].Raw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.credentials[key]
	if c == nil {
		c = &credential{
			requests: map[*context.CancelFunc]struct{}{},
			request:  &http.Request{URL: &url.URL{}, Header: http.Header{}, TLS: req.TLS, RemoteAddr: req.RemoteAddr},
		}
		if header != "" {
			c.request.Header.Set("Authorization", header)
		}
		l.credentials[key] = c
	}
	c.requests[end] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(c.requests, end)
		if len(c.requests) == 0 && l.credentials[key] == c {
			delete(l.credentials, key)
		}
	}
}

// run looks at the credentials until ctx is done: at each period, and soon after what
// revoked returns has changed.
func (l *longRunning) run(ctx context.Context, period time.Duration, revoked func(context.Context) string) {
	tick, look := time.NewTicker(period), time.NewTicker(revokedPeriod)
	defer tick.Stop()
	defer look.Stop()
	known := revoked(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			now := revoked(ctx)
			if now == known {
				continue
			}
			known = now
		case <-tick.C:
		}
		l.recheck(ctx)
	}
}

func (l *longRunning) recheck(ctx context.Context) {
	l.mu.Lock()
	all := make([]*credential, 0, len(l.credentials))
	for _, c := range l.credentials {
		all = append(all, c)
	}
	l.mu.Unlock()
	ctx = authenticator.WithAudiences(ctx, authenticator.Audiences{identity.Issuer})
	for _, c := range all {
		// The authenticators take the header away.
		if is, ok, err := l.authenticator.AuthenticateRequest(c.request.Clone(ctx)); ok && err == nil && is.User.GetName() != user.Anonymous {
			continue
		}
		l.mu.Lock()
		for end := range c.requests {
			(*end)()
		}
		l.mu.Unlock()
	}
}
