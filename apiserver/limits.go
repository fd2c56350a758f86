package apiserver

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// writesPerSecond is how many writes a user may make, each of up to
	// writeBytes; a larger one counts as several.
	writesPerSecond = 200
	writeBytes      = 16 << 10
	// writeBurst is how many at once: an agent that starts reports on everything.
	writeBurst = 2000
	// mostUsers is how many users' rates are remembered.
	mostUsers = 10000
)

// userLimits keeps one user from filling the disk or keeping etcd busy.
// Administrators and the server's own controllers are not limited.
type userLimits struct {
	mu    sync.Mutex
	users map[string]*rate.Limiter
}

// limitWrites answers 429 to writes of users who make too many. Clients made of
// client-go try again after the time that it names.
func limitWrites(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	limits := &userLimits{users: map[string]*rate.Limiter{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		who, ok := request.UserFrom(req.Context())
		if !ok || isSafe(req.Method) || limits.allow(who, req.ContentLength) {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Retry-After", "1")
		err := apierrors.NewTooManyRequests("user "+who.GetName()+" writes too much", 1)
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
	})
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func (l *userLimits) allow(who user.Info, bytes int64) bool {
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	if bytes < 0 {
		bytes = writeBytes // its length isn't told
	}
	cost := int(min(1+bytes/writeBytes, writeBurst))
	return l.limiter(who.GetName()).AllowN(time.Now(), cost)
}

func (l *userLimits) limiter(name string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.users[name]
	if limiter == nil {
		if len(l.users) >= mostUsers {
			clear(l.users)
		}
		limiter = rate.NewLimiter(writesPerSecond, writeBurst)
		l.users[name] = limiter
	}
	return limiter
}
