package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestReadLimits: a user who isn't an administrator can neither read without end nor
// open watches without end, and doesn't keep others from either.
func TestReadLimits(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	h := limitUsers(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			begun <- struct{}{}
			<-release
		}
	}), newSpending(eventBudget, writeBudget), serializer.NewCodecFactory(runtime.NewScheme()))
	ask := func(who, path, verb, from string) int {
		u := &user.DefaultInfo{Name: who, Groups: []string{user.AllAuthenticated}}
		if who == "admin" {
			u.Groups = []string{user.SystemPrivilegedGroup}
		}
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.RemoteAddr = from
		ctx := request.WithRequestInfo(request.WithUser(req.Context(), u), &request.RequestInfo{Verb: verb})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req.WithContext(ctx))
		return w.Code
	}
	expect := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: status %d, want %d", what, got, want)
		}
	}
	const here = "192.0.2.1:1000"
	ended := make(chan int)
	for range mostWatches {
		go func() { ended <- ask("eve", "/slow", "watch", here) }()
		<-begun
	}
	expect("one watch too many", ask("eve", "/fast", "watch", here), http.StatusTooManyRequests)
	expect("a read beside them", ask("eve", "/fast", "list", here), http.StatusOK)
	expect("another user", ask("jane", "/fast", "watch", here), http.StatusOK)
	expect("an administrator", ask("admin", "/fast", "watch", here), http.StatusOK)
	close(release)
	for range mostWatches {
		expect("a watch", <-ended, http.StatusOK)
	}
	expect("a watch when those have ended", ask("eve", "/fast", "watch", here), http.StatusOK)

	exhausts := func(who, from string) bool {
		for range 10 * readBurst {
			if ask(who, "/fast", "list", from) == http.StatusTooManyRequests {
				return true
			}
		}
		return false
	}
	if !exhausts("eve", here) || exhausts("admin", here) || !exhausts(user.Anonymous, here) {
		t.Error("eve and nobody must be stopped, and an administrator not")
	}
	expect("nobody from elsewhere", ask(user.Anonymous, "/fast", "get", "192.0.2.2:1000"), http.StatusOK)
}
