package apiserver

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
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
	// readsPerSecond is how many reads a user may make, and readBurst how many at
	// once. An agent makes some twenty at its start and then watches.
	readsPerSecond = 400
	readBurst      = 4000
	// readsUnderWay is how many of a user's reads are worked on at a time, watches
	// not counted: a tenth of what the server works on for all.
	readsUnderWay = 200
	// mostUsers is how many users' rates are remembered.
	mostUsers = 10000
)

// userLimits keeps one user from filling the disk, or keeping etcd or the server
// busy. Administrators and the server's own controllers are not limited.
type userLimits struct {
	mu    sync.Mutex
	users map[string]*userLimit
}

// userLimit is what one user has left.
type userLimit struct {
	reads, writes *rate.Limiter
	underWay      atomic.Int64
}

// limitUsers answers 429 to users who ask for too much. Clients made of client-go
// try again after the time that it names.
func limitUsers(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	limits := &userLimits{users: map[string]*userLimit{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		who, ok := request.UserFrom(req.Context())
		if !ok || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
			next.ServeHTTP(w, req)
			return
		}
		limit, what := limits.of(who, req), "writes"
		done, allowed := func() {}, false
		if isSafe(req.Method) {
			what = "reads"
			done, allowed = limit.beginRead(req)
		} else {
			allowed = limit.writes.AllowN(time.Now(), cost(req.ContentLength))
		}
		if allowed {
			defer done()
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Retry-After", "1")
		err := apierrors.NewTooManyRequests("user "+who.GetName()+" "+what+" too much", 1)
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
	})
}

// beginRead reports whether there is room for a read, which ends with done.
func (l *userLimit) beginRead(req *http.Request) (done func(), ok bool) {
	done = func() {}
	if !l.reads.Allow() {
		return done, false
	}
	if info, found := request.RequestInfoFrom(req.Context()); found && isLongRunning(req, info) {
		return done, true
	}
	if l.underWay.Add(1) > readsUnderWay {
		l.underWay.Add(-1)
		return done, false
	}
	return func() { l.underWay.Add(-1) }, true
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// cost is how many writes one of so many bytes counts as.
func cost(bytes int64) int {
	if bytes < 0 {
		bytes = writeBytes // its length isn't told
	}
	return int(min(1+bytes/writeBytes, writeBurst))
}

// of returns what a user has left. Those without credentials are told apart by
// their addresses.
func (l *userLimits) of(who user.Info, req *http.Request) *userLimit {
	name := who.GetName()
	if name == user.Anonymous {
		if host, _, err := net.SplitHostPort(req.RemoteAddr); err == nil {
			name += "@" + host
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.users[name]
	if limit == nil {
		if len(l.users) >= mostUsers {
			clear(l.users)
		}
		limit = &userLimit{reads: rate.NewLimiter(readsPerSecond, readBurst), writes: rate.NewLimiter(writesPerSecond, writeBurst)}
		l.users[name] = limit
	}
	return limit
}
