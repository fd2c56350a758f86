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
	// mostWatches is how many watches, streams and the like a user may have open. An
	// agent has some twenty. Priority and fairness doesn't count those that have begun.
	mostWatches = 1000
	// mostUsers is how many users' rates are remembered.
	mostUsers = 10000
)

// userLimits keeps one user from filling the disk, keeping etcd busy, or the server's
// memory. How many requests are worked on at a time is for priority and fairness to say.
// Administrators and the server's own controllers are not limited.
type userLimits struct {
	mu    sync.Mutex
	users map[string]*userLimit
}

// userLimit is what one user has left.
type userLimit struct {
	reads, writes *rate.Limiter
	watches       atomic.Int64
}

// limitUsers answers 429 to users who ask for too much. Clients made of client-go
// try again after the time that it names.
func limitUsers(next http.Handler, spent *spending, codecs runtime.NegotiatedSerializer) http.Handler {
	limits := &userLimits{users: map[string]*userLimit{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		who, ok := request.UserFrom(req.Context())
		if !ok || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
			next.ServeHTTP(w, req)
			return
		}
		if why := spent.refuses(who, req); why != "" {
			// Without a time in the header: client-go would wait for it and say nothing.
			answerError(apierrors.NewTooManyRequests("user "+who.GetName()+" "+why, 0), codecs, w, req)
			return
		}
		done, why := limits.of(who, req).begin(req)
		if why == "" {
			defer done()
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Retry-After", "1")
		answerError(apierrors.NewTooManyRequests("user "+who.GetName()+" "+why, 1), codecs, w, req)
	})
}

func answerError(err error, codecs runtime.NegotiatedSerializer, w http.ResponseWriter, req *http.Request) {
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// begin says why there is no room for a request; one that there is room for ends with done.
func (l *userLimit) begin(req *http.Request) (done func(), why string) {
	done = func() {}
	switch {
	case isSafe(req.Method) && !l.reads.Allow():
		return done, "reads too much"
	case !isSafe(req.Method) && !l.writes.AllowN(time.Now(), cost(req.ContentLength)):
		return done, "writes too much"
	}
	if info, found := request.RequestInfoFrom(req.Context()); !found || !isLongRunning(req, info) {
		return done, ""
	}
	if l.watches.Add(1) > mostWatches {
		l.watches.Add(-1)
		return done, "has too many watches and streams open"
	}
	return func() { l.watches.Add(-1) }, ""
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
